"""The words for outcomes and times, the same on every page."""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bridge.requests.waiting import span

if TYPE_CHECKING:
    from bridge.report.model import RunView

_GRADES = {
    "succeeded": "good", "ACCEPTED": "good",
    "ACCEPTED_BY_REQUESTER": "warn", "signed": "good", "cancelled": "warn", "INCOMPLETE": "warn",
    "unsigned": "warn", "requested": "open", "claimed": "busy", "running": "busy", "ok": "good",
    "--": "warn",
}  # fmt: skip
_COLORS = {"good": "green", "warn": "yellow", "bad": "red", "open": "blue", "busy": "cyan"}
_EVIDENCE = {
    "signed": "signed with a pinned key",
    "unsigned": "nobody vouches for it",
    "broken": "does not hold",
}


def grade(word: str) -> str:
    """Return the grade of a state, a verdict or an evidence status: good, bad, open or busy."""
    return _GRADES.get(word, "bad")


def is_graded(word: str) -> bool:
    """Return whether a word stands for an outcome."""
    return word in _GRADES


def color(word: str) -> str:
    """Return the colour of a state, a verdict, an evidence status or a check's mark in a terminal."""
    return _COLORS[grade(word)]


def badges(run: "RunView") -> list[tuple[str, str]]:
    """Return state, verdict and evidence of a run as words, each with its grade."""
    words = [(run.state.replace("_", " "), run.state), (_EVIDENCE[run.evidence.status], run.evidence.status)]
    if run.gate:
        words.insert(1, (f"gate: {run.gate.verdict}", run.gate.verdict))
    # If a check of the answer failed, the state and verdict in it mean nothing.
    believed = run.evidence.status != "broken"
    return [(word, grade(key) if believed or key == "broken" else "") for word, key in words]


def ago(seconds: float) -> str:
    """Return how long ago a time was."""
    since = time.time() - seconds
    if since < 0:
        return "just now"
    return f"{since / 86400:.0f} d" if since >= 2 * 86400 else span(since)


def stamp(seconds: float) -> str:
    """Return a time in UTC in the pages' format."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
