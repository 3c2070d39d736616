"""The statistics of reports, without NumPy: medians and their bounds, exact intervals, and Student's t."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from statistics import NormalDist

_STEPS = 60
_TERMS = 2000
_MANY = 200
# With more trials than this, an exact interval is no sum, which takes long. Published figures keep their last digits.
_MANY_TRIALS = 300
_CLOSE = 1e-14
_TINY = 1e-300


def median(values: Iterable[float]) -> float:
    """Return the middle value, or the mean of the two middle ones; NaN without values, or if one of them is NaN."""
    ordered = sorted(values)
    half = len(ordered) // 2
    if not ordered or any(map(math.isnan, ordered)):
        return math.nan
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def bounds_of_median(values: Iterable[float], level: float = 0.9) -> tuple[float, float]:
    """Return the two values between which the median lies with a probability of at least ``level``.

    The result has the k-th values from both ends, with the largest such k, whatever the distribution (Conover 1999,
    section 3.2). Few values do not allow that probability: then the result is the least and the greatest. For many
    values, the normal distribution replaces the binomial one. There must be at least one value.
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


def signed_rank_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """Return the middle of a symmetric distribution by its samples, and the ends of its interval.

    The middle is the median of all means of two values (Hodges and Lehmann 1963). The interval is that of Wilcoxon's
    signed-rank test, exactly (Hollander, Wolfe and Chicken 2014, section 3.3). Outliers change it little. If there are
    too few values for the level, it reaches from the least value to the greatest.
    """
    means = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    k = _least_rank(len(values), level)
    return median(means), means[k], means[-1 - k]


@lru_cache(maxsize=128)
def _least_rank(count: int, level: float) -> int:
    """Return how many means of two values lie outside of the interval at each end."""
    # ways[s]: how many sets of the ranks from 1 to `count` have the sum s.
    ways = [1]
    for rank in range(1, count + 1):
        more = [0] * rank
        ways = [a + b for a, b in zip([*ways, *more], [*more, *ways], strict=True)]
    tail, k = 0, 0
    while 2 * (tail + ways[k]) <= (1 - level) * 2**count:
        tail += ways[k]
        k += 1
    return max(k - 1, 0)


@lru_cache(maxsize=1024)
def exact_interval(hits: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Return the two-sided interval of a share, exact for any number of trials (Clopper and Pearson 1934)."""
    tail = (1 - level) / 2
    low = 0.0 if hits == 0 else _bisect(lambda p: 1 - _at_most(hits - 1, trials, p) < tail)
    high = 1.0 if hits == trials else _bisect(lambda p: _at_most(hits, trials, p) > tail)
    return low, high


def student_t_p_value(t: float, freedom: int) -> float:
    """Return how probably Student's t with ``freedom`` degrees is at least as far from 0 as ``t`` (DLMF 8.17)."""
    a, b, x = freedom / 2, 0.5, freedom / (freedom + t * t)
    if x >= 1:
        return 1.0
    return _beta(a, b, x) if x < (a + 1) / (a + b + 2) else 1 - _beta(b, a, 1 - x)


def _bisect(holds: Callable[[float], bool]) -> float:
    """Return the largest share at which a condition holds that is true for small shares."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low + high) / 2


def _at_most(hits: int, trials: int, share: float) -> float:
    """Return the probability of at most ``hits`` of ``trials``: a sum, or for many its closed form I(1-p; n-k, k+1)."""
    if not 0 < share < 1:
        return 1.0 if share <= 0 or hits >= trials else 0.0
    if trials > _MANY_TRIALS:
        a, b, x = trials - hits, hits + 1, 1 - share
        return _beta(a, b, x) if x < (a + 1) / (a + b + 2) else 1 - _beta(b, a, share)
    yes, no = math.log(share), math.log1p(-share)
    whole = math.lgamma(trials + 1)
    return math.fsum(
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(trials - k + 1) + k * yes + (trials - k) * no)
        for k in range(hits + 1)
    )


def _beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function by its continued fraction (DLMF 8.17.22), by Lentz's method."""
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or _TINY)
    value, step, m = d, math.inf, 0
    while abs(step - 1) >= _CLOSE and m < _TERMS:
        m += 1
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd_term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd_term):
            d = 1 / (1 + term * d or _TINY)
            c = 1 + term / c or _TINY
            value *= c * d
        step = c * d
    return math.exp(scale) * value / a
