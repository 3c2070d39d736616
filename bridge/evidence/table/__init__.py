"""The table of all violation codes of the gate: why each matters, and how to fix it."""

from __future__ import annotations

from bridge.evidence.table import figures, reports, runs
from bridge.evidence.table.entry import Entry

__all__ = ["TABLE", "Entry"]

TABLE = {entry.code: entry for entry in (*reports.ENTRIES, *figures.ENTRIES, *runs.ENTRIES)}
