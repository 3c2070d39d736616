"""Codecs for K and V vectors."""
