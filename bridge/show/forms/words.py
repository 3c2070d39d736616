"""The words for outcomes and times, the same on every page."""

import time
from datetime import UTC, datetime

from bridge.requests.sighting import span
from bridge.verify.verdict import Conclusion, Trust

# The grades of checks' marks and of evidence; those of states and verdicts are in `bridge.verify.verdict`.
_GRADES = {"ok": "good", "--": "warn", "FAIL": "bad", "signed": "good", "unsigned": "warn", "broken": "bad"}
_COLORS = {"good": "green", "warn": "yellow", "bad": "red", "open": "blue", "busy": "cyan"}


def grade(word: str) -> str:
    """Return the grade of a check's mark or an evidence status; empty for any other word."""
    return _GRADES.get(word, "")


def color(grade: str) -> str:
    """Return the colour of a grade in a terminal; no colour for an empty grade."""
    return _COLORS.get(grade, "")


def badges(shown: Conclusion) -> list[tuple[str, str]]:
    """Return the outcome of an answer, its verdict with its voucher, and the voucher, as words with their grades."""
    if shown.is_refused:
        # The content of an answer that does not hold means nothing.
        return [(spaced(shown.state), ""), (shown.word, shown.grade)]
    words = [(spaced(shown.state), shown.grade)]
    if shown.judged:
        words.append((f"gate: {shown.judged}", shown.verdict_grade))
    is_signed = shown.trust is Trust.SIGNED
    return [*words, ("signed with a pinned key", "good") if is_signed else (shown.voucher, "warn")]


def spaced(word: str) -> str:
    """Return a state's name with spaces in place of underscores."""
    return word.replace("_", " ")


def ago(seconds: float) -> str:
    """Return how long ago a time was."""
    since = time.time() - seconds
    if since < 0:
        return "just now"
    return f"{since / 86400:.0f} d" if since >= 2 * 86400 else span(since)


def stamp(seconds: float) -> str:
    """Return a time in UTC in the pages' format."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
