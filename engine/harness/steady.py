"""Checks whether equal runs took about equally long, and repeats them if not, or if a figure is not precise enough."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bridge.reports.counted import counted, decode_rate
from bridge.reports.statistics import bounds_of_median
from engine.errors import BadInput
from engine.harness.arm import Turn, interleave
from engine.harness.rows import Row

Further = Callable[[Sequence[Row]], Iterator[list[Turn[Any, Any]]]]

TIGHT = 0.05  # the bounds of a median may differ from it by at most this share
# The largest ratio of equal prefills and of equal decoding rates that the gate accepts.
SPREADS = (3.0, 2.0)
# No further repeat begins later than this many seconds after the start, so that a run meets its deadline.
BEGINS_WITHIN = 1800.0
# If rows are steady, extra repeats for precision begin only within this multiple of the configured repeats'
# time.
LONGER = 1.25


def steady(rows: Sequence[Row]) -> bool:
    """Return whether each arm read and decoded each prompt in about the same time in every repeat."""
    times: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in counted(rows):
        if rate := decode_rate(row):
            times[row["arm"], row["prompt"]].append((row["prefill_s"], rate))
    return all(
        high <= most * low
        for some in times.values()
        for most, (low, high) in zip(SPREADS, map(bounds_of_median, zip(*some, strict=True)), strict=True)
    )


def is_tight(values: Sequence[float]) -> bool:
    """Return whether the median of some positive values is known within 5 %; see ``bounds_of_median``."""
    low, high = bounds_of_median(values)
    middle = statistics.median(values)
    return (1 - TIGHT) * middle <= low and high <= (1 + TIGHT) * middle


def until_steady(
    arms: Sequence[Any],
    prompts: Sequence[Any],
    repeats: int,
    most: int,
    suffice: Callable[[Sequence[Row]], bool] = lambda _: True,
) -> Further:
    """Return a function that yields the turns of further repeats, until the rows are steady.

    Only the rows decide, so that a reader can repeat the decision: nobody stopped when a figure suited. ``repeats`` is
    the last one that there is, counted from 1, ``most`` the last one that there may be. ``suffice`` says whether steady
    rows give the figures that they are for.

    Raises:
        BadInput: ``most`` is less than ``repeats``.
    """
    if most < repeats:
        raise BadInput(f"at most {most} repeats cannot be {repeats}", "choose --max-repeats above --repeats")

    def further(rows: Sequence[Row]) -> Iterator[list[Turn[Any, Any]]]:
        for repeat in range(repeats + 1, most + 1):
            before = [row for row in rows if row["repeat"] < repeat]
            late = end_time(before) > LONGER * end_time([row for row in before if row["repeat"] <= repeats])
            if (steady(before) and (late or suffice(before))) or end_time(before) > BEGINS_WITHIN:
                return
            yield list(interleave(arms, prompts, [repeat]))

    return further


def end_time(rows: Sequence[Row]) -> float:
    """Return when the last counted row ended, in seconds since the run began."""
    return max(float(row["started_s"] + row["e2e_s"]) for row in counted(rows))
