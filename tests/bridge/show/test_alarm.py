"""The alarm of trends: how often it is false, and how soon it is right. Seeded, so that it fails for a reason."""

from __future__ import annotations

import random

import pytest

from bridge.reports.statistics import student_t_p_value
from bridge.show.alarm import LEAST_AFTER, LEAST_BEFORE, changes

RUNS = 60
SPREAD = 0.02
HISTORIES = 1000


def normal(dice: random.Random) -> float:
    return dice.gauss(0, 1)


def heavy_tails(dice: random.Random) -> float:
    """Student's t with five degrees of freedom."""
    return dice.gauss(0, 1) / (sum(dice.gauss(0, 1) ** 2 for _ in range(5)) / 5) ** 0.5


def now_and_then_slow(dice: random.Random) -> float:
    return dice.gauss(0, 1) - (3 if dice.random() < 0.05 else 0)


def history(dice: random.Random, noise, spread: float, runs: int = RUNS, level: float = 100.0) -> list[float]:
    return [level * (1 + spread * noise(dice)) for _ in range(runs)]


@pytest.mark.long
@pytest.mark.parametrize("noise", [normal, heavy_tails, now_and_then_slow])
def test_at_most_one_history_in_a_hundred_without_a_change_raises_an_alarm(noise):
    dice = random.Random(1)

    false = sum(bool(changes(history(dice, noise, SPREAD))) for _ in range(HISTORIES))

    assert false <= HISTORIES / 100


@pytest.mark.parametrize(("spread", "least"), [(0.01, 0.99), (0.015, 0.99), (0.02, 0.97)])
def test_a_drop_of_ten_percent_is_found_within_three_runs(spread, least):
    dice, found = random.Random(2), 0
    for _ in range(300):
        runs = history(dice, normal, spread, runs=20) + history(dice, normal, spread, runs=3, level=90)
        found += any(18 <= change.at <= 20 and change.shown_at <= 22 for change in changes(runs))

    assert found >= least * 300


def test_a_change_says_when_it_was_how_large_and_is_told_once():
    steady = [100.0, 101.0, 99.0, 100.5, 99.5, 100.0, 100.2, 99.8]
    lower = [90.0, 91.0, 89.0, 90.5, 89.5, 90.0]

    (change,) = changes(steady + lower)

    assert (change.at, change.shown_at) == (8, 10)
    assert change.text() == "fell by 10.0%"
    assert [one.text() for one in changes(steady + lower + steady)] == ["fell by 10.0%", "rose by 11.1%"]


@pytest.mark.parametrize(
    "values",
    [
        [],
        [1.0],
        [1.0] * 50,
        [0.0] * 50,
        [100.0] * LEAST_BEFORE + [50.0] * (LEAST_AFTER - 1),
        [100.0] * (LEAST_BEFORE - 1) + [50.0] * LEAST_AFTER,
        [100.0] * 20 + [99.0] * 20,
        [100.0 + i % 5 for i in range(20)] + [50.0, 60.0] + [100.0 + i % 5 for i in range(20)],
        [0.0, 1.0] * 30,
    ],
    ids=[
        "none",
        "one",
        "all equal",
        "all nothing",
        "two runs after",
        "too few before",
        "a change that does not matter",
        "two odd runs",
        "only noise",
    ],
)
def test_what_is_no_alarm(values):
    assert changes(values) == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [(100.0, 90.0, "fell by 10.0%"), (0.0, 1.0, "changed from 0 to 1"), (1.0, 0.0, "changed from 1 to 0"),
     (-2.0, -1.0, "rose by 50.0%"), (-1.0, 1.0, "changed from -1 to 1")],
)  # fmt: skip
def test_figures_that_are_the_same_each_time_have_an_alarm_too(before, after, said):
    (change,) = changes([before] * LEAST_BEFORE + [after] * LEAST_AFTER)

    assert change.text() == said


@pytest.mark.parametrize(
    ("t", "freedom", "chance"),
    [
        (0.0, 5, 1.0),
        (2.228, 10, 0.05),
        (-2.228, 10, 0.05),
        (12.706, 1, 0.05),
        (4.297, 30, 0.00017),
        (1e9, 3, 0.0),
    ],
)
def test_the_probability_of_student_s_t(t, freedom, chance):
    """As tables give it."""
    assert student_t_p_value(t, freedom) == pytest.approx(chance, rel=0.03, abs=1e-12)
