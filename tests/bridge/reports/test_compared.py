"""What a comparison amounts to: its change, and whether that exceeds a limit."""

from __future__ import annotations

import json
import random
from itertools import product

import pytest

from bridge.common.errors import ManifestError
from bridge.reports.claims.compare import ARMS, compare_claims, order_of, schedule
from bridge.reports.compared import read_comparison
from bridge.reports.statistics import signed_rank_interval
from bridge.reports.views.kinds import shown
from tests.bridge.gate import reports


def compared(change=1.0, noise=0.02, **config):
    return read_comparison(json.dumps(reports.in_run(reports.compare(change, noise, **config))).encode())


@pytest.mark.parametrize(
    ("change", "better", "expected", "is_slow"),
    [
        (1.1, "lower", "regression", True),
        (1.03, "lower", "regression", False),
        (0.9, "lower", "improvement", False),
        (1.0, "lower", "none", False),
        (0.9, "higher", "regression", True),
        (1.1, "higher", "improvement", False),
    ],
)
def test_a_change_is_told_from_noise_and_compared_with_a_limit(change, better, expected, is_slow):
    seen = compared(change, 0.01, better=better)

    assert (seen.change, seen.is_worse_than(0.05)) == (expected, is_slow)
    assert seen.text.startswith({"none": "no change beyond the noise"}.get(expected, expected))
    assert seen.as_dict()["change"] == expected


def test_what_the_noise_explains_is_no_change():
    assert compared(1.1, 0.3).change == "none"
    assert not compared(1.1, 0.3).is_worse_than(0)


@pytest.mark.parametrize(
    "edit",
    [{"rows": []}, {"kind": "other"}, {"rows": [{"round": 1, "position": 0, "arm": "again", "value": 1.0}]}],
)
def test_what_is_no_comparison_is_not_read_as_one(edit):
    with pytest.raises(ManifestError, match="comparison"):
        read_comparison(json.dumps(reports.in_run(reports.compare()) | edit).encode())


def test_all_arms_have_the_same_mean_position_and_every_place():
    for n in range(1, 7):
        positions = {arm: [i for i, name in enumerate(order_of(n)) if name == arm] for arm in ARMS}
        assert {sum(some) for some in positions.values()} == {5}
    assert {order_of(n)[:3] for n in range(6)} == {
        order for order in product(ARMS, repeat=3) if len({*order}) == 3
    }
    assert [slot.warmup for slot in schedule(6)].count(True) == 3
    assert len([*schedule(6)]) == 39


def test_a_drift_of_the_machine_is_no_change():
    report = reports.compare(1.0, 0.001)
    for i, row in enumerate(report["rows"]):
        row["value"] *= 1 + i / 100

    assert [claim["name"] for claim in compare_claims(report)] == ["ratio", "ratio"]


def test_changes_are_claimed_for_equal_trees_in_few_of_many_comparisons():
    dice = random.Random(2)

    def claims(change):
        report = reports.compare()
        for row in report["rows"]:
            row["value"] = (change if row["arm"] == "candidate" else 1.0) * dice.lognormvariate(0, 0.03)
        return len(compare_claims(report)) > 2

    assert sum(claims(1.0) for _ in range(100)) <= 1
    assert sum(claims(1.1) for _ in range(100)) >= 98


# R 4.3: wilcox.test(x, conf.int = TRUE, exact = TRUE) for x <- c(...), at 95 %.
def test_the_interval_is_that_of_wilcoxons_test():
    values = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    other = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]

    found = signed_rank_interval([a - b for a, b in zip(values, other, strict=True)])

    assert found == pytest.approx((0.46, 0.01, 0.786), abs=1e-9)


def test_few_values_give_the_whole_range_and_equal_ones_a_point():
    assert signed_rank_interval([3.0, 1.0]) == (2.0, 1.0, 3.0)
    assert signed_rank_interval([2.0] * 10) == (2.0, 2.0, 2.0)


def test_a_page_shows_each_arm_and_each_run():
    (table,), (plot,) = shown(reports.compare(1.1))

    assert [row[:3] for row in table.rows] == [
        ("candidate", "d" * 12, 20), ("baseline", "e" * 12, 20), ("again", "e" * 12, 20),
    ]  # fmt: skip
    assert {len(series.points) for series in plot.series} == {20}
    broken = {"kind": "kakeya.compare", "rows": [{"arm": "again", "round": "x"}, 7], "config": 3}
    assert shown(broken)[0][0].rows[2][2] == 0
