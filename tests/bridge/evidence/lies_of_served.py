"""Lies about the server's matrix: a cell that differs, that is missing, or whose features never ran."""

from __future__ import annotations

from typing import Any

from tests.bridge.evidence.lies import Edit, Lie, Report
from tests.bridge.evidence.reports import digest

SERVED = "kakeya.serve-conformance"


def rows(change: dict[str, Any], counters: dict[str, int] | None = None, **where: Any) -> Edit:
    """Return an edit of all rows whose fields are as said."""

    def edit(report: Report) -> None:
        for row in report["rows"]:
            if all(row[name] == value for name, value in where.items()):
                row.update(change)
                row["counters"].update(counters or {})

    return edit


def without(**where: Any) -> Edit:
    """Return an edit that takes rows out."""

    def edit(report: Report) -> None:
        report["rows"] = [
            row for row in report["rows"] if not all(row[name] == value for name, value in where.items())
        ]

    return edit


def another(**change: Any) -> Edit:
    """Return an edit that adds a row like the last one."""
    return lambda report: report["rows"].append(report["rows"][-1] | change)


DRAFTED = {"draft": "lookup", "cache": "raw", "warm": True, "clients": 2, "form": "free"}
ONE = {**DRAFTED, "question": 1}

SERVED_LIES = {
    "an answer with other tokens": Lie(
        SERVED, rows({"tokens": digest("y"), "text": "y"}, **ONE), ("CELL_DIFFERS",)
    ),
    "an answer that ended for another reason": Lie(SERVED, rows({"stop": "stop"}, **ONE), ("CELL_DIFFERS",)),
    "a cell that was not asked": Lie(SERVED, without(**DRAFTED), ("CELL_MISSING",)),
    "a cache that was asked for and left out": Lie(
        SERVED, lambda report: report["config"].update(cache="all"), ("CELL_MISSING",)
    ),
    "a question that nobody asked alone": Lie(
        SERVED, without(draft="none", warm=False, clients=1, question=1, form="free"), ("CELL_MISSING",)
    ),
    "a cell that is there twice": Lie(SERVED, another(), ("ROW_REPEATED",)),
    "a cell that is not configured": Lie(SERVED, another(form="free", text="x e8v@4.25 1", stop="length",
        n_tokens=32, tokens=digest("x e8v@4.25 1"), draft="dflash"), ("ROW_REPEATED",)),
    "drafts that nobody proposed": Lie(
        SERVED, rows({}, {"rounds": 0, "proposed": 0, "accepted": 0}, draft="lookup"), ("FEATURE_NEVER_RAN",)
    ),
    "a prompt that was read again": Lie(SERVED, rows({}, {"cached_tokens": 0}, warm=True), ("FEATURE_NEVER_RAN",)),
    "clients that were served one by one": Lie(SERVED, rows({}, {"together": 1}, clients=2), ("FEATURE_NEVER_RAN",)),
    "a fallback": Lie(SERVED, rows({"fallback": "It did without drafts."}, **ONE), ("FEATURE_NEVER_RAN",)),
    "a packed cache of the raw one's size": Lie(
        SERVED, rows({}, {"cache_bytes": 4096}, cache="e8v@4.25"), ("FEATURE_NEVER_RAN",)
    ),
    "more drafts of an answer accepted than proposed": Lie(
        SERVED, rows({}, {"accepted": 21}, **ONE), ("ROW_CONTRADICTS",)
    ),
    "answers longer than asked for": Lie(SERVED, rows({"n_tokens": 33}, form="free"), ("ROW_CONTRADICTS",)),
    "JSON that is none": Lie(
        SERVED, rows({"text": '{"path":1', "tokens": digest("none")}, form="json_schema"), ("TEXT_CONTRADICTS",)
    ),
}  # fmt: skip
