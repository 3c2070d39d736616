"""Speculative decoding with block drafters."""
