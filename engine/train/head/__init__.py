"""The recipe of one-layer heads, EAGLE-3."""
