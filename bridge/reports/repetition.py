"""Answers that repeat themselves, answers that differ, and prompts that repeat each other.

Answers that repeat themselves are easy to guess, so their speed and acceptance prove nothing. Prompts that repeat each
other count as one.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from bridge.reports.counted import counted

Row = Mapping[str, Any]

# An answer repeats itself if it contains a unit of at most UNIT tokens TIMES times in a row. If more than the share
# MOST of an arm's answers repeat themselves, nothing is claimed about speed or acceptance.
UNIT, TIMES, MOST = 8, 12, 0.2


def repeats_itself(tokens: Sequence[object]) -> bool:
    """Return whether an answer repeats itself."""
    for size in range(1, UNIT + 1):
        run = 0
        for before, token in zip(tokens, tokens[size:], strict=False):
            run = run + 1 if before == token else 0
            if run >= size * (TIMES - 1):
                return True
    return False


def repeating_arms(rows: Iterable[Row]) -> dict[str, tuple[int, int]]:
    """Return the arms with too many answers that repeat themselves: on how many prompts, and of how many."""
    looping: dict[str, dict[str, bool]] = defaultdict(dict)
    known: dict[tuple[int, ...], bool] = {}
    for row in counted(rows):
        tokens = tuple(row["tokens"])
        if tokens not in known:
            known[tokens] = repeats_itself(tokens)
        earlier = looping[row["arm"]].get(row["prompt"], False)
        looping[row["arm"]][row["prompt"]] = earlier or known[tokens]
    counts = {arm: (sum(answers.values()), len(answers)) for arm, answers in looping.items()}
    return {arm: (some, every) for arm, (some, every) in counts.items() if some > MOST * every}


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """Return the first position at which two answers differ, None if they are equal."""
    pairs = enumerate(zip_longest(ours, theirs))
    return next((i for i, (first, second) in pairs if first != second), None)


def words_of(text: str) -> str:
    """Return a text with each run of blanks as one space, so that prompts with equal words count as one prompt."""
    return " ".join(text.split())
