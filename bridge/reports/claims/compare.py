"""Claims about two trees of the requester's code: ratios of a round's runs, and changes beyond the null arm's noise.

Each round runs every arm twice, and its mirrored order gives all arms the same mean position: a machine that slowly
warms up or slows down changes no ratio. The null arm is the baseline once more. Its ratio shows what this machine
reports for a change that is none.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any, NamedTuple

from bridge.reports.counted import counted
from bridge.reports.statistics import signed_rank_interval

CANDIDATE, BASELINE, AGAIN = ARMS = ("candidate", "baseline", "again")
_ORDERS = tuple(permutations(ARMS))

RATIO = (
    "the two runs of the arm in a round over those of the other (geometric means): the Hodges-Lehmann estimate over "
    "all rounds; interval: of Wilcoxon's signed-rank test, 95 %"
)
_CHANGE = (
    "how many times {} the candidate is than the baseline, by their ratio; claimed only if the ratio's whole interval "
    "is outside of the null arm's interval, and farther from 1 than the null arm's ratio"
)
IMPROVEMENT, REGRESSION = "improvement", "regression"
DEFINITIONS = {IMPROVEMENT: _CHANGE.format("better"), REGRESSION: _CHANGE.format("worse")}


class Interval(NamedTuple):
    """An estimate with the ends of its interval."""

    value: float
    low: float
    high: float

    @property
    def distance(self) -> float:
        """How far the estimate is from 1, as the logarithm of a factor."""
        return abs(math.log(self.value))

    @property
    def gap(self) -> float:
        """How far the whole interval is from 1, as the logarithm of a factor; 0 if it contains 1."""
        return max(0.0, math.log(self.low), -math.log(self.high))

    @property
    def inverse(self) -> "Interval":
        """The estimate of the inverse."""
        return Interval(1 / self.value, 1 / self.high, 1 / self.low)

    def __str__(self) -> str:
        return f"{self.value:.4f} ({self.low:.4f} to {self.high:.4f})"


class Ratios(NamedTuple):
    """The candidate and the null arm, each over the baseline."""

    candidate: Interval
    null: Interval

    @property
    def is_change(self) -> bool:
        """Whether the candidate's interval is outside of the null arm's, and farther from 1 than its ratio."""
        is_outside = self.candidate.low > self.null.high or self.candidate.high < self.null.low
        return is_outside and self.candidate.gap > self.null.distance

    def change(self, better: str) -> str | None:
        """Return whether the candidate is better or worse; None within noise. ``better``: which ratios are better."""
        if not self.is_change:
            return None
        return IMPROVEMENT if (self.candidate.value < 1) == (better == "lower") else REGRESSION

    def __str__(self) -> str:
        return f"candidate over baseline {self.candidate}, baseline over itself {self.null}"


class Slot(NamedTuple):
    """One run of the measured step, in the order in which the runner makes them."""

    round: int
    position: int
    arm: str
    warmup: bool = False


def schedule(rounds: int) -> Iterator[Slot]:
    """Yield the runs of a comparison: a warm-up of each arm, which is not counted, and the rounds from 1."""
    yield from (Slot(0, i, arm, warmup=True) for i, arm in enumerate(ARMS))
    for n in range(1, rounds + 1):
        yield from (Slot(n, i, arm) for i, arm in enumerate(order_of(n)))


def order_of(round_: int) -> tuple[str, ...]:
    """Return the arms of one round in the order in which they run: an order, and its mirror image."""
    order = _ORDERS[round_ % len(_ORDERS)]
    return (*order, *reversed(order))


def compare_claims(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the ratio, the null arm's ratio and, if it exceeds the null arm's noise, the change."""
    both = ratios(report["rows"])
    if both is None:
        return []
    ratio, null = both
    claims = [_claim("ratio", arm, estimate, RATIO) for arm, estimate in ((CANDIDATE, ratio), (AGAIN, null))]
    if name := both.change(report["config"]["better"]):
        estimate = ratio if ratio.value > 1 else ratio.inverse
        claims.append(_claim(name, CANDIDATE, estimate, DEFINITIONS[name]))
    return claims


def ratios(rows: Sequence[Mapping[str, Any]]) -> Ratios | None:
    """Return the ratios of the rows' rounds; None if no round is whole."""
    rounds = [*_whole_rounds(rows)]
    if not rounds:
        return None
    return Ratios(_ratio(rounds, CANDIDATE), _ratio(rounds, AGAIN))


def _ratio(rounds: Sequence[Mapping[str, float]], arm: str) -> Interval:
    estimate = signed_rank_interval([logs[arm] - logs[BASELINE] for logs in rounds])
    return Interval(*(math.exp(min(each, 700)) for each in estimate))


def _whole_rounds(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, float]]:
    """Yield the mean logarithm of each arm's runs in each round that has all arms."""
    logs: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in counted(rows):
        logs[row["round"]][row["arm"]].append(math.log(row["value"]))
    for arms in logs.values():
        if all(arm in arms for arm in ARMS):
            yield {arm: math.fsum(values) / len(values) for arm, values in arms.items()}


def _claim(name: str, arm: str, estimate: Interval, definition: str) -> dict[str, Any]:
    return {
        "name": name, "value": estimate.value, "definition": definition, "arm": arm, "against": BASELINE,
        "interval": [estimate.low, estimate.high],
    }  # fmt: skip
