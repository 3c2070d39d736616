"""Requests that have their answers: used again, or removed."""
