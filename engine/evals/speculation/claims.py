"""Claims: named statistics of a report's rows, as docs/evidence.md defines them. Warm-up rows count nowhere."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.evals.speculation.repeating import repeating

Row = dict[str, Any]

# What docs/evidence.md asks of figures of time.
LEAST_ROWS, LEAST_REPEATS, LEAST_TOKENS = 5, 3, 32

DEFINITIONS = {
    "decode_tok_s": "median over prompts of the median over repeats of decode_tokens / decode_s",
    "decode_speedup": "median over prompts of the quotient of both arms' medians over repeats of decode_tokens "
    "/ decode_s",
    "worst_speedup": "the least over prompts of the quotient of both arms' medians over repeats of "
    "decode_tokens / decode_s",
    "decode_ratio": "median over prompts of the quotient of both arms' medians over repeats of decode_tokens / "
    "decode_s; the other arm is no stock baseline",
    "e2e_speedup": "median over prompts of the quotient of both arms' medians over repeats of all tokens / e2e_s",
    "accept_length": "tokens committed over rounds of the loop, the target's own token of each round counted, "
    "rounds without drafts too",
    "accept_rate": "drafts accepted over drafts proposed",
    "identical_outputs": "share of prompts on which every repeat gives the oracle's tokens",
    "cache_bytes": "the most bytes that the arrays of a row's caches held after its last token, filled or not",
}


@dataclass(frozen=True)
class Table:
    """Counted rows by arm and prompt."""

    rows: dict[str, dict[str, list[Row]]]

    @classmethod
    def of(cls, rows: Iterable[Row]) -> "Table":
        """Index rows; warm-up and profile runs are left out."""
        found: dict[str, dict[str, list[Row]]] = {}
        for row in rows:
            if not row.get("warmup"):
                found.setdefault(row["arm"], {}).setdefault(row["prompt"], []).append(row)
        return cls(found)

    def per_prompt(self, arm: str, rate: Callable[[Row], float]) -> dict[str, float]:
        """Return the median over repeats of a row's figure, for each prompt."""
        return {prompt: statistics.median(map(rate, rows)) for prompt, rows in self.rows[arm].items()}

    def quotients(self, arm: str, against: str, rate: Callable[[Row], float]) -> list[float]:
        """Return the quotient of two arms' figures, for each prompt on which the other one has any."""
        ours, theirs = self.per_prompt(arm, rate), self.per_prompt(against, rate)
        return [ours[prompt] / theirs[prompt] for prompt in ours if theirs[prompt]]

    def all(self, arm: str) -> list[Row]:
        """Return every counted row of an arm."""
        return [row for rows in self.rows[arm].values() for row in rows]

    def identical(self, arm: str, oracle: str) -> list[bool]:
        """Return for each prompt whether every repeat gave the oracle's tokens."""
        return [
            all(
                row["tokens"] == other["tokens"]
                for row, other in zip(rows, self.rows[oracle][prompt], strict=True)
            )
            for prompt, rows in self.rows[arm].items()
        ]


def decode_rate(row: Row) -> float:
    """Return decoded tokens per second without the first token; 0 if there was no other."""
    return row["decode_tokens"] / row["decode_s"] if row["decode_tokens"] else 0.0


def e2e_rate(row: Row) -> float:
    """Return all tokens over the whole time, prefill included."""
    found: float = len(row["tokens"]) / row["e2e_s"]
    return found


def tau(rows: Sequence[Row]) -> float:
    """Return committed tokens per round, including the target's own token."""
    rounds = sum(len(row["commits"]) for row in rows)
    return sum(sum(row["commits"]) for row in rows) / rounds if rounds else 0.0


def speculation_claims(
    rows: Sequence[Row], arms: Sequence[dict[str, Any]], prompts: Sequence[dict[str, Any]] = ()
) -> list[dict[str, Any]]:
    """Return the claims that the rows of a benchmark allow: figures of time only where enough was timed.

    Of several workloads there are claims of each where there are those of all together. Nothing is claimed of the
    speed or the acceptance of text that repeats itself (:mod:``engine.evals.speculation.repeating``).

    Args:
        rows: all of them.
        arms: the report's section.
        prompts: the report's section; without it, all rows are of one workload.
    """
    made = _of(rows, arms, {})
    groups: dict[str, set[str]] = {}
    for prompt in prompts:
        groups.setdefault(prompt["workload"], set()).add(prompt["id"])
    told = {_about(claim) for claim in made}
    for workload, members in groups.items() if len(groups) > 1 else ():
        some = _of([row for row in rows if row["prompt"] in members], arms, {"workload": workload})
        made += [claim for claim in some if _about(claim) in told]
    return made


def _about(claim: dict[str, Any]) -> tuple[str, str, str | None]:
    return claim["name"], claim["arm"], claim.get("against")


def _of(rows: Sequence[Row], arms: Sequence[dict[str, Any]], where: dict[str, str]) -> list[dict[str, Any]]:
    table = Table.of(rows)
    prompts = {row["prompt"] for row in rows}
    where = where | ({"prompt": next(iter(prompts))} if len(prompts) == 1 else {})
    guessed = bool(repeating(rows))
    made = []
    for arm in arms:
        made += _of_arm(table, arm)
        if not guessed:
            made += [*_drafted(table, arm), *_timed(table, arm, arms)]
    return [claim | {"where": where} for claim in made] if where else made


def _of_arm(table: Table, arm: dict[str, Any]) -> list[dict[str, Any]]:
    name, rows = arm["name"], table.all(arm["name"])
    made = [_claim("cache_bytes", max(row["memory"]["cache_bytes"] for row in rows), arm=name)]
    if arm["oracle"] is not None:
        same = table.identical(name, arm["oracle"])
        made.append(_claim("identical_outputs", sum(same) / len(same), arm=name))
    return made


def _drafted(table: Table, arm: dict[str, Any]) -> list[dict[str, Any]]:
    name, rows, made = arm["name"], table.all(arm["name"]), []
    if any(row.get("commits") for row in rows):  # not if every answer ended with its first token
        made.append(_claim("accept_length", tau(rows), arm=name))
        drafted = sum(sum(row["drafted"]) for row in rows)
        if drafted:
            accepted = sum(sum(row["accepted"]) for row in rows)
            made.append(_claim("accept_rate", accepted / drafted, arm=name))
    return made


def _timed(table: Table, arm: dict[str, Any], arms: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    name = arm["name"]
    if not enough(table, name):
        return []
    made = [middle("decode_tok_s", list(table.per_prompt(name, decode_rate).values()), arm=name)]
    others = [other for other in arms if arm["role"] == "candidate" and enough(table, other["name"])]
    for other in others:
        against = {"arm": name, "against": other["name"]}
        quotients = table.quotients(name, other["name"], decode_rate)
        if other["role"] == "baseline":
            made.append(middle("decode_speedup", quotients, **against))
            made.append(_claim("worst_speedup", min(quotients), **against))
            made.append(middle("e2e_speedup", table.quotients(name, other["name"], e2e_rate), **against))
        elif other["role"] == "reference" or _is_other_loop(arm, other):
            made.append(middle("decode_ratio", quotients, **against))
    return made


def _is_other_loop(arm: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether an arm computes a round as one graph, and another one drafts the same in another loop."""
    names = ("block_size", "lookup", "adaptive", "rollback")
    loops = [one.get("options", {}).get("loop", "lazy") for one in (arm, other)]
    same = all(arm.get("options", {}).get(name) == other.get("options", {}).get(name) for name in names)
    return same and other["role"] == "candidate" and loops[0] == "fused" != loops[1]


def one_graph_loses(
    claims: Sequence[dict[str, Any]], contexts: dict[str, int]
) -> dict[tuple[str, str], int | None]:
    """Return for each arm of one graph and each other loop from which context on the one graph is slower.

    None means that it is not slower at the longest context.

    Args:
        claims: of the report.
        contexts: tokens of each workload's prompts.
    """
    found: dict[tuple[str, str], dict[int, float]] = {}
    for claim in claims:
        at = contexts.get(claim.get("where", {}).get("workload", ""))
        arms = claim.get("arm", ""), claim.get("against", "")
        if claim["name"] == "decode_ratio" and at and arms[0].endswith("/fused") and "/" in arms[1]:
            found.setdefault(arms, {})[at] = claim["value"]
    return {pair: _slower_from(ratios) for pair, ratios in found.items()}


def _slower_from(ratios: dict[int, float]) -> int | None:
    """Return the least context from which on every ratio is below 1."""
    least = None
    for context in sorted(ratios, reverse=True):
        if ratios[context] >= 1:
            break
        least = context
    return least


def enough(table: Table, arm: str) -> bool:
    """Say whether an arm ran often and long enough for a claim about time."""
    rows = table.all(arm)
    repeats = min(len(of_prompt) for of_prompt in table.rows[arm].values())
    decoded = [row["decode_tokens"] for row in rows]
    return (
        len(rows) >= LEAST_ROWS
        and repeats >= LEAST_REPEATS
        and statistics.median(decoded) >= LEAST_TOKENS
        and min(decoded) > 0
    )


def middle(name: str, values: list[float], **about: str) -> dict[str, Any]:
    """Return a claim of a median over prompts; its interval is the least and the greatest prompt."""
    return _claim(name, statistics.median(values), **about) | {"interval": [min(values), max(values)]}


def _claim(name: str, value: float, **about: str) -> dict[str, Any]:
    return {"name": name, "value": value, **about, "definition": DEFINITIONS[name]}
