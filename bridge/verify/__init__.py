"""Checking an answer offline: its files, its signature, whether it can be true, and writing it to disk."""
