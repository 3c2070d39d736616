"""Lies about the server's matrix: a cell that differs, that is missing, or whose features never ran."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bridge.evidence.laws.cells import digest_of
from tests.bridge.evidence.lies import Edit, Lie, Report
from tests.bridge.evidence.reports import digest
from tests.bridge.evidence.whole import served_at_a_tie

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


def at_a_tie(edit: Callable[[Report, Report], object]) -> Edit:
    """Return an edit of a report in which an answer parts, and of that answer's row."""

    def change(report: Report) -> None:
        report.clear()
        report.update(served_at_a_tie())
        edit(report, next(row for row in report["rows"] if "divergence" in row))

    return change


def best(*logits: float, tokens: Sequence[int] = (10, 40)) -> Edit:
    """Return an edit that records other logits, or other tokens."""
    pair = [[token, logit] for token, logit in zip(tokens, logits, strict=True)]
    return at_a_tie(lambda _, row: row["divergence"].update(best=pair))


def ours(row: Report, tokens: list[int]) -> None:
    """Let an answer have these tokens."""
    row["tokens"], row["divergence"]["ours"] = digest_of(tokens), tokens


def raw_in_float32(report: Report) -> None:
    """Let an answer from a raw cache part at logits that lie 0.01 apart."""
    report.update(served_at_a_tie("raw"))
    report["models"][0]["dtype"] = "float32"
    row = next(row for row in report["rows"] if "divergence" in row)
    row["divergence"]["best"][1][1] = 11.49


PARTINGS = {
    "an answer that parts at no near tie": best(11.5, 10.5),
    "two recorded tokens that do not differ": best(11.5, 11.4999, tokens=(10, 41)),
    "two logits in the wrong order": best(11.4999, 11.5),
    "a parting at another token": at_a_tie(lambda _, row: row["divergence"].update(index=10)),
    "token ids that are not the answer's": at_a_tie(lambda _, row: row["divergence"]["ours"].__setitem__(20, 7)),
    "token ids that are not the single client's": at_a_tie(
        lambda _, row: row["divergence"]["theirs"].__setitem__(20, 7)
    ),
    "fewer token ids than tokens": at_a_tie(lambda _, row: ours(row, row["divergence"]["ours"][:31])),
    "an answer that only ends sooner": at_a_tie(
        lambda _, row: (ours(row, row["divergence"]["theirs"][:31]), row.update(n_tokens=31, stop="stop"))
    ),
    "a parting that the engine calls a fault": at_a_tie(lambda _, row: row["divergence"].update(kind="fault")),
    "a parting of equal tokens": at_a_tie(
        lambda _, row: row.update(tokens=digest_of([*range(1, 33)]), text="x e8v@4.25 0")
    ),
    "a parting of raw caches in float32": raw_in_float32,
}  # fmt: skip


def beside(report: Report) -> tuple[Report, list[Report]]:
    """Return the answer that parts, and the other answers to its question from the same cache."""
    parted = next(row for row in report["rows"] if "divergence" in row)
    about = ("cache", "form", "question")
    same = [row for row in report["rows"] if all(row[name] == parted[name] for name in about)]
    return parted, [row for row in same if row is not parted]


def many_in_float32(report: Report) -> None:
    """Let a fifth of the packed answers part as one of them does."""
    report.update(served_at_a_tie())
    report["models"][0]["dtype"] = "float32"
    parted, others = beside(report)
    for row in others:
        if (row["draft"], row["warm"]) != ("none", False):
            row |= {name: parted[name] for name in ("tokens", "text", "divergence")}


def other_logits(report: Report) -> None:
    """Let the same answer part at other logits elsewhere."""
    report.update(served_at_a_tie())
    parted, others = beside(report)
    others[-1] |= {"tokens": parted["tokens"], "text": parted["text"]}
    others[-1]["divergence"] = parted["divergence"] | {"best": [[10, 11.6], [40, 11.5999]]}


PARTINGS |= {
    "a fifth of the answers parts": many_in_float32,
    "the same answer parts at other logits": other_logits,
    "an answer that repeats itself behind a tie": at_a_tie(
        lambda _, row: ours(row, row["divergence"]["ours"][:10] + [7] * 22)
    ),
    "a tie that is wider than what rounding moves": at_a_tie(
        lambda _, row: row["divergence"].update(rounding=1e-9)
    ),
    "a tie of which no rounding is recorded": at_a_tie(lambda _, row: row["divergence"].pop("rounding")),
}

SERVED_LIES = {
    **{name: Lie(SERVED, edit, ("CELL_DIFFERS",)) for name, edit in PARTINGS.items()},
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
