"""The statistics that claims use, without NumPy."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from statistics import NormalDist

# By how many standard deviations of chance times must lie apart so that no busy machine explains it: 1 run in 2,000.
APART = 3.3

_STEPS = 60
_TERMS = 2000
_MANY = 200
_CLOSE = 1e-14
_TINY = 1e-300

# Seconds of a tick of the coarsest counter: Apple's makes 24 million a second. How many pairs of times share a tick by
# chance follows from how many lie within so many ticks of each other, narrowly or widely. More than so rarely is no
# chance.
TICK, NEAR, BY_CHANCE = 1 / 24e6, (30, 1000), 1e-5


def median(values: Iterable[float]) -> float:
    """Return the middle value, or the mean of the two; NaN of none, and where one of them is NaN."""
    ordered = sorted(values)
    half = len(ordered) // 2
    if not ordered or any(map(math.isnan, ordered)):
        return math.nan
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def bounds_of_median(values: Iterable[float], level: float = 0.9) -> tuple[float, float]:
    """Return the two values between which the median lies with a probability of at least ``level``.

    They are the k-th from each end for the largest such k, whatever the distribution (Conover 1999, section 3.2);
    of few values, which cannot say it so surely, the least and the greatest. Of many, the normal distribution takes the
    place of the binomial one. There must be a value.
    """
    ordered, k, beyond = sorted(values), 0, 0.0
    if len(ordered) > _MANY:
        reach = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(len(ordered)) / 2
        k = math.floor(len(ordered) / 2 - reach)
        return ordered[k - 1], ordered[-k]
    while k < len(ordered) // 2:
        beyond += 2 * math.comb(len(ordered), k) / 2 ** len(ordered)
        if k and beyond > 1 - level:
            break
        k += 1
    return (ordered[k - 1], ordered[-k]) if k else (ordered[0], ordered[-1])


def exact_interval(hits: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Return the two-sided interval of a share (Clopper and Pearson 1934)."""
    tail = (1 - level) / 2
    low = 0.0 if hits == 0 else _bisect(lambda p: 1 - _at_most(hits - 1, trials, p) < tail)
    high = 1.0 if hits == trials else _bisect(lambda p: _at_most(hits, trials, p) > tail)
    return low, high


def two_sided(t: float, freedom: int) -> float:
    """Return how likely Student's t lies at least so far from 0, with so many degrees of freedom (DLMF 8.17)."""
    a, b, x = freedom / 2, 0.5, freedom / (freedom + t * t)
    if x >= 1:
        return 1.0
    return _beta(a, b, x) if x < (a + 1) / (a + b + 2) else 1 - _beta(b, a, 1 - x)


def _bisect(below: Callable[[float], bool]) -> float:
    """Return where a condition that holds for small shares ends to hold."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return (low + high) / 2


def _at_most(hits: int, trials: int, p: float) -> float:
    """Return the chance of at most ``hits`` of ``trials``, each with probability ``p``: I(1-p; trials-hits, hits+1)."""
    a, b, x = trials - hits, hits + 1, 1 - p
    return _beta(a, b, x) if x < (a + 1) / (a + b + 2) else 1 - _beta(b, a, p)


def _beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function by its continued fraction (DLMF 8.17.22), by Lentz's method."""
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or _TINY)
    value, step, m = d, math.inf, 0
    while abs(step - 1) >= _CLOSE and m < _TERMS:
        m += 1
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / (1 + term * d or _TINY)
            c = 1 + term / c or _TINY
            value *= c * d
        step = c * d
    return math.exp(scale) * value / a


def deviations_above(pairs: Iterable[tuple[Sequence[float], Sequence[float]]]) -> float:
    """Return by how many standard deviations of chance the first values of pairs exceed the second ones.

    This is the rank sum test of Mann and Whitney (1947), its counts added up over the pairs. Few values say little:
    three that all exceed three others are 2 standard deviations apart, in three pairs 3.4.
    """
    wins = mean = variance = 0.0
    for ours, theirs in pairs:
        m, n = len(ours), len(theirs)
        ordered = sorted(theirs)
        wins += sum(bisect_left(ordered, value) for value in ours)
        mean += m * n / 2
        variance += m * n * (m + n + 1) / 12
    return (wins - mean) / math.sqrt(variance) if variance else 0.0


def at_least(count: int, expected: float) -> float:
    """Return how probable so many or more are in a Poisson distribution."""
    term = less = math.exp(-expected)
    for i in range(1, count):
        term *= expected / i
        less += term
    return 1 - less


def shared_by_chance(values: list[float], tick: float = TICK) -> float:
    """Return how many pairs of values one tick is expected to hold, from the pairs that lie near but apart."""
    ordered = sorted(values)
    same = _within(ordered, tick / 2)
    return max((_within(ordered, ticks * tick) - same) / ticks for ticks in NEAR)


def _within(ordered: list[float], width: float) -> int:
    """Return how many pairs of sorted values are no further apart."""
    near, first = 0, 0
    for i, value in enumerate(ordered):
        while value - ordered[first] > width:
            first += 1
        near += i - first
    return near


def shared_prefix(texts: Sequence[str]) -> str:
    """Return what all texts begin with."""
    first, last = min(texts), max(texts)
    for i, (a, b) in enumerate(zip(first, last, strict=False)):
        if a != b:
            return first[:i]
    return first[: min(len(first), len(last))]


def shared_suffix(texts: Sequence[str]) -> str:
    """Return what all texts end with."""
    return shared_prefix([text[::-1] for text in texts])[::-1]


def loops(items: Sequence[object], unit: int = 8, times: int = 12) -> bool:
    """Return whether one unit of at most ``unit`` items stands somewhere in a sequence, at least ``times`` over."""
    for size in range(1, unit + 1):
        run, wanted = 0, size * (times - 1)
        for before, item in zip(items, items[size:], strict=False):
            run = run + 1 if before == item else 0
            if run >= wanted:
                return True
    return False


def repeated_share(items: Sequence[object], unit: int = 16, times: int = 3) -> float:
    """Return the largest share that one unit of at most ``unit`` items, ``times`` over or more, has of a sequence."""
    most = 0
    for size in range(1, unit + 1):
        run = 0
        for before, item in zip(items, items[size:], strict=False):
            run = run + 1 if before == item else 0
            if run >= size * (times - 1):
                most = max(most, run + size)
    return most / len(items) if items else 0.0


def repeats_at_the_end(items: Sequence[object], unit: int = 8, times: int = 12) -> bool:
    """Return whether a sequence ends in one unit of at most ``unit`` items, at least ``times`` over."""
    for size in range(1, unit + 1):
        span = size * times
        if len(items) < span:
            return False
        tail = items[-span:]
        if all(tail[i] == tail[i % size] for i in range(span)):
            return True
    return False
