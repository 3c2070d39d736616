"""The recipe of drafters."""
