"""Judging a request: its manifest, its parameters, and whose code may run here."""
