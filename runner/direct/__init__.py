"""Requests that come without a git bus: one manifest in, one answer folder out, by the same rules as over a bus."""
