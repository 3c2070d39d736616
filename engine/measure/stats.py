"""Intervals of shares."""

import math
from collections.abc import Callable


def exact_interval(hits: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Return the two-sided interval of a share, exact for any number of trials (Clopper and Pearson, 1934)."""
    tail = (1 - level) / 2
    low = 0.0 if hits == 0 else _where(lambda p: 1 - _at_most(hits - 1, trials, p) < tail)
    high = 1.0 if hits == trials else _where(lambda p: _at_most(hits, trials, p) > tail)
    return low, high


def _where(holds: Callable[[float], bool]) -> float:
    """Return the largest share at which a condition holds that is true for small shares."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low + high) / 2


def _at_most(hits: int, trials: int, share: float) -> float:
    """Return the probability of at most ``hits`` of ``trials``."""
    if not 0 < share < 1:
        return 1.0 if share <= 0 or hits >= trials else 0.0
    yes, no = math.log(share), math.log1p(-share)
    whole = math.lgamma(trials + 1)
    return math.fsum(
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(trials - k + 1) + k * yes + (trials - k) * no)
        for k in range(hits + 1)
    )
