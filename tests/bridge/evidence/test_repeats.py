"""Repeats that go on while the times of equal runs differ much."""

from __future__ import annotations

import pytest

from bridge.evidence import check_report
from bridge.evidence.laws import repeats as laws
from tests.bridge.evidence import reports
from tests.bridge.evidence.lies import each, idle, on_repeat, slower


def run(repeats: int, slow: int, most: int = 9, field: str = "decode_s", times: float = 3.8):
    """A report of at least three repeats, the first of which are slow for one arm on one prompt."""
    made = reports.spec_bench(repeats=repeats)
    made["config"] |= {"repeats": 3, "max_repeats": most}
    for repeat in range(slow):
        each("one-pass", on_repeat(repeat, slower(times, field)), "code-0")(made)
        each("mlx-lm", on_repeat(repeat, slower(times, field)), "code-0")(made)
    return reports.timed(reports.restate(made))


def codes(made) -> set[str]:
    return {violation.code for violation in check_report(made)}


@pytest.mark.parametrize(
    ("repeats", "slow", "found"),
    [
        (3, 0, set()),
        (4, 0, {"RUNS_MISNUMBERED"}),  # the first three were close
        (3, 1, {"RUNS_MISNUMBERED", "DECODE_SPREAD"}),  # they were not, and nothing followed
        (7, 1, {"RUNS_MISNUMBERED", "DECODE_SPREAD"}),
        (8, 1, set()),  # the median of eight is that of the seven others
        (9, 1, {"RUNS_MISNUMBERED"}),
        (9, 2, {"DECODE_SPREAD"}),  # as many as were to be
        (10, 2, {"RUNS_MISNUMBERED", "DECODE_SPREAD"}),
    ],
)
def test_repeats_go_on_until_times_are_close_and_no_further(repeats, slow, found):
    assert codes(run(repeats, slow)) == found


def test_eleven_repeats_bear_two_that_were_held_up():
    assert codes(run(11, 2, most=11)) == set()


def test_prefill_is_held_against_itself_too():
    assert codes(run(3, 1, field="prefill_s", times=4.1)) == {"RUNS_MISNUMBERED", "SPEEDUP_PREFILL_VARIANCE"}
    assert codes(run(8, 1, field="prefill_s", times=4.1)) == set()


def test_no_repeat_has_to_begin_late_in_a_run():
    made = run(3, 1)
    made["seconds"] *= 100
    start = 0.0
    for row in made["rows"]:
        row["started_s"] = start
        start += row["e2e_s"] * 1.01
    made["rows"][-1]["started_s"] += laws.BEGINS_WITHIN
    made["seconds"] = start + laws.BEGINS_WITHIN
    assert "DECODE_SPREAD" in codes(made)
    assert "RUNS_MISNUMBERED" not in codes(made)


def test_one_arm_does_not_run_more_often_than_others():
    made = run(8, 1)
    made["rows"] = [row for row in made["rows"] if (row["arm"], row["repeat"]) != ("one-pass", 7)]
    assert "RUNS_MISNUMBERED" in codes(reports.timed(made))


@pytest.mark.parametrize("most", [None, True, "9", 2])
def test_without_a_count_there_are_as_many_as_configured(most):
    made = run(8, 1)
    made["config"]["max_repeats"] = most
    assert "RUNS_MISNUMBERED" in codes(made)


@pytest.mark.parametrize(("adapts", "drafts", "found"), [(True, 1, False), (True, 0, True), (False, 1, True)])
def test_an_arm_that_adapts_may_stop_to_draft_where_drafts_do_not_pay(adapts, drafts, found):
    made = reports.spec_bench()
    made["arms"][2]["options"] = {"adaptive": adapts}
    rows = [row for row in made["rows"] if row["arm"] == "dflash"]
    for row in rows[drafts:]:
        idle(row)
    assert ("FUSED_NEVER_RAN" in codes(made)) == found
