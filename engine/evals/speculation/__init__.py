"""Speculative decoding compared with plain decoding."""
