"""The statistics of reports, against published values and second formulas."""

from __future__ import annotations

import math

import pytest

from bridge.reports.repetition import repeating_arms, repeats_itself
from bridge.reports.statistics import bounds_of_median, exact_interval, median, student_t_p_value


def textbook_interval(hits: int, trials: int) -> tuple[float, float]:
    """Return the interval by summing binomial terms, as textbooks write it."""

    def at_most(k: int, share: float) -> float:
        return sum(math.comb(trials, i) * share**i * (1 - share) ** (trials - i) for i in range(k + 1))

    def bisect(holds) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if holds(middle) else (low, middle)
        return low

    low = bisect(lambda p: 1 - at_most(hits - 1, p) < 0.025) if hits else 0.0
    return low, bisect(lambda p: at_most(hits, p) > 0.025) if hits < trials else 1.0


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [
        (0, 10, 0.0, 0.308497), (10, 10, 0.691503, 1.0), (5, 10, 0.187086, 0.812914), (1, 20, 0.001265, 0.248733),
        (0, 1, 0.0, 0.975), (1, 1, 0.025, 1.0),
    ],
)  # fmt: skip
def test_exact_intervals_are_the_published_ones(hits, trials, low, high):
    assert exact_interval(hits, trials) == pytest.approx((low, high), abs=2e-6)


@pytest.mark.parametrize("trials", [1, 2, 7, 30, 101, 301])
def test_exact_intervals_agree_with_the_textbook(trials):
    for hits in range(0, trials + 1, max(1, trials // 10)):
        assert exact_interval(hits, trials) == pytest.approx(textbook_interval(hits, trials), abs=1e-9)


def test_the_interval_of_very_many_trials_takes_a_moment():
    low, high = exact_interval(3_000_000, 10_000_000)
    assert low < 0.3 < high
    assert high - low == pytest.approx(2 * 1.96 * math.sqrt(0.21 / 1e7), rel=1e-2)


def test_a_share_of_all_or_none_is_bounded_on_one_side():
    low, high = exact_interval(30_000, 30_000)
    assert (low, high) == (pytest.approx(0.025 ** (1 / 30_000), rel=1e-6), 1.0)
    assert exact_interval(0, 30_000)[0] == 0.0


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 15, 40, 199])
def test_the_bounds_of_a_median_hold_it_as_often_as_they_say(count):
    low, high = bounds_of_median(range(count))
    k = low + 1
    outside = 2 * sum(math.comb(count, i) for i in range(k)) / 2**count
    assert (low, high) == (k - 1, count - k)
    if k > 1:
        assert outside <= 0.1
        # The next narrower pair of values would say it too seldom.
        if 2 * (k + 1) <= count:
            assert 2 * sum(math.comb(count, i) for i in range(k + 1)) / 2**count > 0.1


def test_the_bounds_of_few_values_are_the_outermost():
    assert bounds_of_median([3.0, 1.0, 2.0]) == (1.0, 3.0)


@pytest.mark.parametrize("count", [201, 1_001])
def test_the_bounds_of_many_values_agree_with_the_exact_ones(count):
    exact = next(
        k for k in range(count) if 2 * sum(math.comb(count, i) for i in range(k + 1)) / 2**count > 0.1
    )
    low, high = bounds_of_median(range(count))
    assert abs(low - (exact - 1)) <= 1
    assert low + high == count - 1


@pytest.mark.parametrize(("values", "expected"), [([3, 1, 2], 2), ([4, 1, 2, 3], 2.5), ([5], 5)])
def test_the_median(values, expected):
    assert median(values) == expected


@pytest.mark.parametrize("values", [[], [1.0, math.nan]])
def test_the_median_of_what_is_not_known(values):
    assert math.isnan(median(values))


@pytest.mark.parametrize(
    ("t", "freedom", "p"),
    [(0.0, 5, 1.0), (12.706205, 1, 0.05), (2.570582, 5, 0.05), (4.032143, 5, 0.01), (1.96, 10**6, 0.05)],
)
def test_two_sided_probabilities_are_those_of_tables(t, freedom, p):
    assert student_t_p_value(t, freedom) == pytest.approx(p, abs=2e-4)


@pytest.mark.parametrize(
    ("tokens", "repeats"),
    [
        ([7] * 12, True), ([7] * 11, False), ([1, 2] * 12, True), ([1, 2] * 11, False), ([*range(8)] * 12, True),
        ([*range(9)] * 12, False), ([*range(100), *[5] * 12, *range(100)], True), ([], False),
    ],
)  # fmt: skip
def test_an_answer_repeats_itself(tokens, repeats):
    assert repeats_itself(tokens) is repeats


def test_an_arm_repeats_itself_if_more_than_a_fifth_of_its_answers_do():
    def rows(looping: int, of: int) -> list[dict]:
        return [
            {"arm": "a", "prompt": f"p{i}", "tokens": [7] * 12 if i < looping else [i]} for i in range(of)
        ]

    assert repeating_arms(rows(1, 5)) == {}
    assert repeating_arms(rows(2, 5)) == {"a": (2, 5)}
    assert repeating_arms([row | {"warmup": True} for row in rows(5, 5)]) == {}
