"""Verifies an answer offline (files, history, signature, plausibility), and writes it to disk."""
