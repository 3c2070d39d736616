"""Detects when a repeatedly measured figure has changed. A pure function from values to changes.

The method is the change-point model for an unknown mean and spread: Hawkins, Qiu and Kang, "The changepoint model for
statistical process control", Journal of Quality Technology 35 (2003) 355-366. After each run, it tries every way to
split the runs since the last change into two groups, with Student's t-test for two samples. The strongest split raises
the alarm if its probability by chance is below ``CHANCE``. After an alarm, the search restarts at the split. So nobody
has to set a limit by hand, and no run has to be known as good.

Three things differ from the paper:

- A split needs at least three runs after it, each of them clearly apart from the runs before. So one or two outliers
  raise no alarm, even if the noise is not normal.
- A split has at most ten runs after it, because an older change was reported when it was new.
- One limit for the probability replaces the paper's table. It was found by simulation: of 10,000 histories of 60 runs
  without a change, 0.4 % raise an alarm with normal noise, 0.5 % with heavy tails (Student's t with 5 degrees of
  freedom), and 0.7 % if every twentieth run is slower by three standard deviations. The tests repeat that with 1,000
  histories each.

Positive values are compared by their logarithms, because the noise of times and rates grows with their size.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from bridge.reports.statistics import student_t_p_value

# A split raises an alarm if its probability by chance is below this.
CHANCE = 3e-5
LEAST_BEFORE = 6
LEAST_AFTER = 3
# Each run after a split must differ from the mean of the runs before it by this many of their standard deviations.
APART = 1.5
MOST_AFTER = 10
# How many runs back the search goes: older measurements may no longer be comparable.
WINDOW = 60
# A smaller relative change of the mean raises no alarm, however certain it is.
LEAST_CHANGE = 0.02
# The relative spread that is assumed for figures that never vary.
_LEAST_SPREAD = 1e-3
# A normal variable exceeds this many standard deviations, in either direction, with a probability below 0.1 %.
_LEAST_T = 3.3


@dataclass(frozen=True)
class Change:
    """A change of the mean. ``at`` is the first run after it, ``shown_at`` the run that revealed it; both from 0."""

    at: int
    shown_at: int
    before: float
    after: float

    def text(self) -> str:
        """Return a sentence about the change."""
        factor = self.after / self.before if self.before else 0.0
        if factor <= 0:
            return f"changed from {self.before:.4g} to {self.after:.4g}"
        return f"{'fell' if self.after < self.before else 'rose'} by {abs(factor - 1):.1%}"


def changes(values: Sequence[float]) -> list[Change]:
    """Return the changes of a figure's mean, oldest first, as the alarm would have reported them run by run."""
    runs = _Runs(values)
    changed: list[Change] = []
    begin = 0
    for end in range(1, len(values) + 1):
        change = runs.change(max(begin, end - WINDOW), end)
        if change:
            changed.append(change)
            begin = change.at
    return changed


class _Runs:
    """The values of all runs, with prefix sums for the mean and spread of any part."""

    def __init__(self, values: Sequence[float]) -> None:
        self._values = values
        is_log = all(value > 0 for value in values)
        scaled = [math.log(value) for value in values] if is_log else values
        # Use differences from the first value, so that sums of squares keep their precision.
        self._shifted = [value - scaled[0] for value in scaled]
        self._sums = list(accumulate(self._shifted, initial=0.0))
        self._squares = list(accumulate((value * value for value in self._shifted), initial=0.0))
        self._least = _LEAST_SPREAD * (1.0 if is_log or not values else max(map(abs, values)))

    def change(self, start: int, end: int) -> Change | None:
        """Return the change that the last of these runs reveals, or None."""
        best, at = CHANCE, None
        for split in range(max(start + LEAST_BEFORE, end - MOST_AFTER), end - LEAST_AFTER + 1):
            before = self._part(start, split)
            if not _is_apart(self._shifted[split:end], before):
                continue
            chance = _by_chance(before, self._part(split, end), self._least)
            if chance < best:
                best, at = chance, split
        if at is None:
            return None
        earlier, after = _mean(self._values[start:at]), _mean(self._values[at:end])
        is_large = abs(after - earlier) >= LEAST_CHANGE * abs(earlier)
        return Change(at, end - 1, earlier, after) if is_large else None

    def _part(self, start: int, end: int) -> "_Part":
        count, total = end - start, self._sums[end] - self._sums[start]
        squares = self._squares[end] - self._squares[start]
        return _Part(count, total / count, max(0.0, squares - total * total / count))


class _Part(NamedTuple):
    """Runs on one side of a split: how many, their mean, and the sum of their squared distances from it."""

    runs: int
    mean: float
    squares: float


def _is_apart(values: Sequence[float], before: _Part) -> bool:
    """Return whether all runs after a split differ clearly from those before it, in one direction."""
    least = APART * math.sqrt(before.squares / (before.runs - 1))
    sign = 1 if values[-1] > before.mean else -1
    return all((value - before.mean) * sign >= least for value in reversed(values))


def _by_chance(before: _Part, after: _Part, least: float) -> float:
    """Return the p-value of the difference of two means, by Student's t-test for two samples."""
    freedom = before.runs + after.runs - 2
    spread = max(math.sqrt((before.squares + after.squares) / freedom), least)
    if spread == 0:
        return 1.0 if before.mean == after.mean else 0.0
    t = (before.mean - after.mean) / (spread * math.sqrt(1 / before.runs + 1 / after.runs))
    # With fewer degrees of freedom, an alarm needs an even larger value.
    return student_t_p_value(t, freedom) if abs(t) > _LEAST_T else 1.0


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
