"""Claims about shares: of problems that are solved, and of drafted tokens on which two drafters agree."""

from collections.abc import Mapping
from typing import Any

from bridge.reports.claims.recall import IDENTICAL, share_claim, where_all

SOLVED = (
    "share of problems whose one greedy solution passes the problem's tests; "
    "interval: exact (Clopper and Pearson), 95 %"
)
AGREEMENT = (
    "share of drafted tokens on which both agree, position by position, all blocks together; "
    "interval: exact (Clopper and Pearson), 95 %"
)
CONTROLS = ("identity", "poison")


def pass_at_1_claims(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each arm's pass@1 and, if it has an oracle, its share of equal answers. Controls have no claims."""
    problems = [prompt["id"] for prompt in report["prompts"]]
    where = where_all(problems)
    rows = {(row["arm"], row["prompt"]): row for row in report["rows"]}
    claims = []
    for arm in report["arms"]:
        name, oracle = arm["name"], arm.get("oracle")
        mine = [rows[name, problem] for problem in problems if (name, problem) in rows]
        if arm["role"] in CONTROLS or len(mine) < len(problems):
            continue
        claims.append(share_claim("pass_at_1", name, SOLVED, where, [row["passed"] for row in mine]))
        if oracle and all((oracle, problem) in rows for problem in problems):
            equal = [row["tokens"] == rows[oracle, row["prompt"]]["tokens"] for row in mine]
            claims.append(share_claim("identical_outputs", name, IDENTICAL, where, equal))
    return claims


def parity_claims(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the agreement over all drafted tokens."""
    drafts = ((row["reference"], row["candidate"]) for row in report["rows"])
    equal = [a == b for reference, candidate in drafts for a, b in zip(reference, candidate, strict=True)]
    where = where_all([prompt["id"] for prompt in report["prompts"]])
    return [share_claim("agreement", None, AGREEMENT, where, equal)] if equal else []
