"""Verifies an answer (files, history, signature, plausibility), and writes it to disk."""
