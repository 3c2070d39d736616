"""Attention over packed keys and values."""
