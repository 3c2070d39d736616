"""Kinds of report that a preset declares itself: a JSON Schema, and claims that are derived again from samples."""

from bridge.reports.own.model import OwnClaim, OwnKind, dump_kinds, read_kinds

__all__ = ["OwnClaim", "OwnKind", "dump_kinds", "read_kinds"]
