"""The recipe of restorers."""
