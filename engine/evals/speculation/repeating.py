"""Answers that repeat themselves. They are easy to guess, so their speed and their acceptance prove nothing."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]

# An answer repeats itself if a unit of at most so many tokens stands somewhere in it so many times in a row. Where more
# than this share of an arm's answers do, the gate of the bridge accepts no claim of speed or acceptance.
UNIT, TIMES, MOST = 8, 12, 0.2


def repeats_itself(tokens: Sequence[int]) -> bool:
    """Return whether an answer repeats itself."""
    for size in range(1, UNIT + 1):
        run = 0
        for before, token in zip(tokens, tokens[size:], strict=False):
            run = run + 1 if before == token else 0
            if run >= size * (TIMES - 1):
                return True
    return False


def repeating(rows: Sequence[Row]) -> dict[str, tuple[int, int]]:
    """Return the arms too many of whose answers repeat themselves: on how many prompts, and of how many."""
    found: dict[str, dict[str, bool]] = defaultdict(dict)
    for row in rows:
        if not row.get("warmup"):
            earlier = found[row["arm"]].get(row["prompt"], False)
            found[row["arm"]][row["prompt"]] = earlier or repeats_itself(row["tokens"])
    counts = {arm: (sum(answers.values()), len(answers)) for arm, answers in found.items()}
    return {arm: (some, every) for arm, (some, every) in counts.items() if some > MOST * every}


def unclaimed(report: dict[str, Any]) -> list[str]:
    """Return a sentence for all prompts, or each workload, of whose speed nothing is claimed because answers repeat."""
    groups: dict[str, set[str]] = {"all prompts": {prompt["id"] for prompt in report["prompts"]}}
    for prompt in report["prompts"]:
        groups.setdefault(prompt["workload"], set()).add(prompt["id"])
    told = []
    for name, members in groups.items():
        dull = repeating([row for row in report["rows"] if row["prompt"] in members])
        for arm, (some, every) in list(dull.items())[:1]:
            told.append(
                f"{name}: no speed or acceptance is claimed, since {arm} repeats itself on {some} of {every} prompts"
            )
    return told
