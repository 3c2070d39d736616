"""The claim about two drafters: on how many drafted tokens they agree."""

from collections.abc import Mapping
from typing import Any

from bridge.reports.claims.recall import everywhere
from bridge.reports.statistics import exact_interval

AGREEMENT = (
    "share of drafted tokens on which both agree, position by position, all blocks together; "
    "interval: exact (Clopper and Pearson), 95 %"
)


def parity_claims(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the agreement over all drafted tokens."""
    pairs = [
        a == b for row in report["rows"] for a, b in zip(row["reference"], row["candidate"], strict=True)
    ]
    if not pairs:
        return []
    return [
        {
            "name": "agreement",
            "value": sum(pairs) / len(pairs),
            "interval": list(exact_interval(sum(pairs), len(pairs))),
            "definition": AGREEMENT,
            "where": everywhere([prompt["id"] for prompt in report["prompts"]]),
        }
    ]
