"""Claims about recall: statistics of the rows, with the same definitions as in the gate."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.measure.stats import exact_interval

Row = Mapping[str, Any]

RECALL = (
    "share of prompts whose greedy answer holds the expected code, case and all, in every repeat; "
    "interval: exact (Clopper and Pearson), 95 %"
)
DELTA = "recall of arm less recall of against, on the same prompts, with its sign"
IDENTICAL = (
    "share of prompts on which every token is that of the arm's oracle in every repeat; "
    "interval: exact (Clopper and Pearson), 95 %"
)
BYTES = "the most bytes that the arrays of a row's cache held after the last token, unused capacity included"


def found(row: Row, expected: Mapping[str, str]) -> bool:
    """Return whether a row's text holds the code of its prompt."""
    return expected[row["prompt"]] in row["text"]


def recall_claims(
    rows: Sequence[Row],
    prompts: Sequence[Mapping[str, Any]],
    arms: Sequence[Mapping[str, Any]],
    *,
    recalls: bool = True,
) -> list[dict[str, Any]]:
    """Return the claims of the counted rows: recall by arm, over all prompts and in each bucket that has several.

    Args:
        rows: of ``kakeya.recall`` or ``kakeya.restored-prefill``.
        prompts: the report's section.
        arms: the report's section.
        recalls: False leaves out ``recall`` and ``recall_delta``.
    """
    expected = {prompt["id"]: prompt["expected"] for prompt in prompts}
    everything = [prompt["id"] for prompt in prompts]
    whole = everywhere(everything)
    buckets: dict[tuple[int, float], list[str]] = {}
    for prompt in prompts:
        buckets.setdefault((prompt["length"], prompt["depth"]), []).append(prompt["id"])
    claims = []
    for arm in arms:
        mine = _by_prompt(rows, arm["name"])
        hits = {prompt: all(found(row, expected) for row in some) for prompt, some in mine.items()}
        claims.append(_share("recall", arm["name"], RECALL, whole, [hits[p] for p in everything]))
        for (length, depth), members in buckets.items():
            if len(members) > 1:
                where = {"length": length, "depth": depth}
                claims.append(_share("recall", arm["name"], RECALL, where, [hits[p] for p in members]))
        if arm["oracle"]:
            claims += _against(arm, rows, mine, hits, whole, expected)
        most = max(row["memory"]["cache_bytes"] for some in mine.values() for row in some)
        claims.append(
            {"name": "cache_bytes", "arm": arm["name"], "value": most, "definition": BYTES, "where": whole}
        )
    return [claim for claim in claims if recalls or claim["name"] not in ("recall", "recall_delta")]


def _by_prompt(rows: Sequence[Row], arm: str) -> dict[str, list[Row]]:
    """Return the counted rows of an arm by their prompts, in the order of their repeats."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["arm"] == arm and not row.get("warmup"):
            found.setdefault(row["prompt"], []).append(row)
    return found


def _against(
    arm: Mapping[str, Any],
    rows: Sequence[Row],
    mine: Mapping[str, Sequence[Row]],
    hits: Mapping[str, bool],
    where: dict[str, Any],
    expected: Mapping[str, str],
) -> Iterable[dict[str, Any]]:
    theirs = _by_prompt(rows, arm["oracle"])
    equal = [
        all(row["tokens"] == other["tokens"] for row, other in zip(some, theirs[prompt], strict=True))
        for prompt, some in mine.items()
    ]
    yield _share("identical_outputs", arm["name"], IDENTICAL, where, equal)
    other = [all(found(row, expected) for row in some) for some in theirs.values()]
    yield {
        "name": "recall_delta",
        "arm": arm["name"],
        "against": arm["oracle"],
        "value": sum(hits.values()) / len(hits) - sum(other) / len(other),
        "definition": DELTA,
        "where": where,
    }


def _share(
    name: str, arm: str, definition: str, where: dict[str, Any], hits: Sequence[bool]
) -> dict[str, Any]:
    return {
        "name": name,
        "arm": arm,
        "value": sum(hits) / len(hits),
        "interval": list(exact_interval(sum(hits), len(hits))),
        "definition": definition,
        "where": where,
    }


def everywhere(prompts: Sequence[str]) -> dict[str, Any]:
    """Return the ``where`` of a claim about all prompts: empty, or the prompt's name if there is only one."""
    return {"prompt": prompts[0]} if len(prompts) == 1 else {}
