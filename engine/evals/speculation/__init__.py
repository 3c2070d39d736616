"""Speculative decoding beside plain decoding."""
