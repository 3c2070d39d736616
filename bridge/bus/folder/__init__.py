"""Reads ``.kakeya/`` on the default branch of a bus."""
