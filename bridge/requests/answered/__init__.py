"""Requests that are answered: reuses their answers, or removes them."""
