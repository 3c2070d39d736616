"""Measures the error and the stored bits of codecs."""
