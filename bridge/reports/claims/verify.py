"""Claims about the cost of verifying several tokens in one forward pass."""

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from bridge.reports.claims.decoding import LEAST_ROWS
from bridge.reports.counted import counted

DEFINITIONS = {
    "verify_ms": "median milliseconds of a forward pass over where.length tokens on where.context cached ones, "
    "the likeliest token of each row included",
    "verify_ratio": "the median seconds of a forward pass over where.length tokens on where.context cached "
    "ones, over those of a pass over one token",
}


def verify_claims(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the claims about the rows of one cache; none if there are too few repeats."""
    passes = passes_of(report["rows"])
    if min(map(len, passes.values()), default=0) < LEAST_ROWS:
        return []
    middle = {key: statistics.median(passes[key]) for key in sorted(passes)}
    claims = []
    for (context, length), seconds in middle.items():
        where = {"where": {"length": length, "context": context}}
        claims.append(_claim("verify_ms", 1000 * seconds, where))
        if (context, 1) in middle:
            claims.append(_claim("verify_ratio", seconds / middle[context, 1], where))
    return claims


def passes_of(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[int, int], list[float]]:
    """Return the seconds of counted passes by context and length."""
    passes: dict[tuple[int, int], list[float]] = {}
    for row in counted(rows):
        passes.setdefault((row["context"], row["length"]), []).append(row["seconds"])
    return passes


def _claim(name: str, value: float, where: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "value": value, **where, "definition": DEFINITIONS[name]}
