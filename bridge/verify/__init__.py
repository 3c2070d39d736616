"""Verifies an answer offline: its files, its signature, its plausibility; and writes it to disk."""
