"""Maintenance beside requests: retention, and a check for branches that block the bus."""
