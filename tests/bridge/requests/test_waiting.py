"""Why a request waits: each reason from records of runners alone, with what to do about it and on which machine."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bridge.bus.presence import Presence, Quota, RunnerState
from bridge.requests.sighting import Availability, RunnerSighting, span
from bridge.requests.waiting import (
    STUCK,
    Code,
    QueuePosition,
    WaitingRequest,
    explain_wait,
)

NOW = 1_800_000_000.0
AT = "2027-01-15T08:00:00Z"  # the same moment
NOWHERE = QueuePosition()
ASKED = WaitingRequest("mac-bridge/noop-1800000000-abcdef", "c" * 40, preset="noop")


def seen(name="mac", *, unchanged_s=0.0, signed=None, **fields):
    known = {
        "schema_version": 1, "id": name, "instance": "0123456789abcdef", "version": "0.1.0",
        "state": RunnerState.SERVING, "labels": [], "presets": {"noop": f"sha256:{'0' * 64}"},
        "patterns": ["mac-bridge/*"], "at": AT, "valid_s": 720.0,
    }  # fmt: skip
    return RunnerSighting(Presence.model_validate(known | fields), unchanged_s, signed)


def reason(*runners, asked=ASKED, place=NOWHERE, now=NOW):
    return explain_wait(asked, runners, place, now)


def test_a_free_runner_takes_it_soon():
    found = reason(seen())
    assert (found.code, found.runner, found.sure, found.fix) == (Code.SOON, "mac", True, "")
    assert found.text() == "mac is free and takes it at its next poll"


@pytest.mark.parametrize(
    ("fault", "waited_s", "code", "text"),
    [
        ("", 59.0, Code.SOON, "mac is free and takes it at its next poll"),
        ("", 61.0, Code.DOUBT, "mac announced itself, but has not taken the request for 61 s"),
        ("cannot push", 0.0, Code.DOUBT, "mac reports a fault, and may not take it (cannot push)"),
    ],
)
def test_a_promise_becomes_a_doubt(fault, waited_s, code, text):
    found = reason(seen(reason=fault), asked=replace(ASKED, made_at=NOW - waited_s))
    assert (found.code, found.is_stuck) == (code, False)
    assert found.text().startswith(text)
    assert "cannot push" not in found.text(known=False)


def test_a_runner_with_other_buses_may_be_running_a_job_of_theirs():
    found = reason(replace(seen(), has_other_buses=True), asked=replace(ASKED, made_at=NOW - 61))
    assert (found.code, found.is_stuck, found.sure) == (Code.TURN, False, False)
    assert found.message.startswith("mac may be running a job of another bus")
    assert reason(replace(seen(), has_other_buses=True)).code is Code.SOON


# (when the record was written, by its clock; how long this clone has seen it; how often its runner polls; what it is)
AGES = [
    (0, 0, None, Availability.FREE), (59, 59, None, Availability.FREE),
    (61, 0, None, Availability.QUIET), (0, 61, None, Availability.QUIET),
    (38, 0, 15.0, Availability.FREE), (40, 0, 15.0, Availability.QUIET), (0, 40, 15.0, Availability.QUIET),
    (1, 0, 0.2, Availability.FREE), (3, 0, 0.2, Availability.QUIET), (0, 3, 0.2, Availability.QUIET),
    (700, 0, 3600.0, Availability.FREE), (721, 721, 3600.0, Availability.GONE),
    # The runner's clock is a day ahead or behind: nobody knows when it wrote this.
    (-86_400, 0, 15.0, Availability.QUIET), (-86_400, 721, 15.0, Availability.GONE),
    (86_400, 0, 15.0, Availability.GONE),
]  # fmt: skip


@pytest.mark.parametrize(("age", "unchanged_s", "poll_s", "availability"), AGES)
def test_a_promise_that_is_older_than_two_polls_is_a_doubt(age, unchanged_s, poll_s, availability):
    sighting = replace(seen(unchanged_s=unchanged_s), poll_s=poll_s)
    assert sighting.availability(NOW + age) is availability
    found = reason(sighting, now=NOW + age)
    assert ("is free" in found.text()) == (found.code is Code.SOON) == (availability is Availability.FREE)


def test_a_doubt_says_when_the_runner_was_seen_and_promises_nothing():
    found = reason(seen(), now=NOW + 240)
    assert (found.code, found.is_stuck, found.sure) == (Code.DOUBT, False, False)
    assert found.text() == "mac takes it if it still runs; last seen 4 min ago by its clock"


@pytest.mark.parametrize(
    ("fields", "availability"),
    [
        ({"state": RunnerState.STOPPED}, Availability.STOPPED),
        ({"state": RunnerState.MAINTENANCE, "reason": "x"}, Availability.MAINTENANCE),
        ({"state": RunnerState.DRAINING}, Availability.DRAINING),
        ({"reason": "cannot push"}, Availability.FAULT),
        ({"busy_with": "mac-bridge/x"}, Availability.BUSY),
    ],
)
def test_what_a_record_says_stands_before_its_age(fields, availability):
    assert seen(**fields).availability(NOW + 240) is availability


@pytest.mark.parametrize(
    ("ends", "availability"),
    [(NOW + 1, Availability.BUSY), (NOW - 1, Availability.QUIET), (None, Availability.BUSY)],
)
def test_a_runner_whose_lease_has_run_out_is_not_busy_but_in_doubt(ends, availability):
    held = replace(seen(busy_with="mac-bridge/x"), lease_ends_at=ends)
    found = reason(held)
    assert held.availability(NOW) is availability
    assert (found.code is Code.DOUBT) == (availability is Availability.QUIET)
    assert "it is next" not in found.text() or availability is Availability.BUSY
    busy = seen("b", instance="f" * 16, busy_with="mac-bridge/y")
    assert (reason(held, busy).code, reason(held, busy).runner) == (
        Code.BUSY,
        "mac" if availability is Availability.BUSY else "b",
    )


def test_one_that_is_fresh_is_named_before_one_that_is_silent():
    found = reason(seen("old", unchanged_s=200), seen("new", instance="f" * 16))
    assert (found.code, found.runner) == (Code.SOON, "new")


@pytest.mark.parametrize(("state", "lasts_s"), [(RunnerState.SERVING, 720), (RunnerState.STOPPED, 15)])
@pytest.mark.parametrize("off", [0, 86_400, -86_400])
def test_requests_are_left_to_another_runner_as_long_as_this_one_has_seen_it_whatever_its_clock(
    state, lasts_s, off
):
    there = seen(state=state, unchanged_s=lasts_s - 1)
    assert there.may_come_back(NOW + off)
    assert not replace(there, unchanged_s=lasts_s).may_come_back(NOW + off)
    assert not there.may_come_back(NOW + 90_000 + lasts_s)


def test_of_two_free_runners_the_one_without_a_fault_is_named():
    found = reason(seen("broken", reason="cannot push"), seen("whole", instance="f" * 16))
    assert (found.code, found.runner) == (Code.SOON, "whole")


def test_a_runner_that_does_not_run_the_preset_is_not_promised_for_one_in_maintenance():
    able, other = seen("able", state=RunnerState.MAINTENANCE, reason="disk"), seen("other", presets={})
    answer = reason(able, other)
    assert (answer.code, answer.runner) == (Code.MAINTENANCE, "able")


def test_a_runner_that_left_the_request_to_others_is_not_promised():
    left, other = (
        seen("left"),
        seen("other", instance="f" * 16, busy_with="mac-bridge/noop-1800000000-123456"),
    )
    asked = replace(ASKED, declined_by=frozenset({left.record.instance}))
    answer = reason(left, other, asked=asked)
    assert (answer.code, answer.runner) == (Code.BUSY, "other")
    assert reason(left, asked=asked).runner == "left", "alone it refuses the request at its next poll"


def test_nobody_has_announced_itself():
    found = reason()
    assert (found.code, found.sure, found.is_stuck) == (Code.UNKNOWN, False, False)
    assert found.fix.endswith("kakeya-runner serve")


@pytest.mark.parametrize(
    ("record", "text", "sure"),
    [
        (seen(state=RunnerState.STOPPED, at="2027-01-15T05:00:00Z"), "seen 3 h ago by its clock; it was stopped", True),
        (seen(at="2027-01-15T05:00:00Z"), "last seen 3 h ago by its clock", False),
        (seen(unchanged_s=721), "last seen 0 s ago by its clock", True),
        (seen(unchanged_s=721, at="2031-01-01T00:00:00Z"), "its clock, which is ahead of the one here", True),
    ],
)  # fmt: skip
def test_no_runner_is_alive(record, text, sure):
    found = reason(seen("older", state=RunnerState.STOPPED, at="2026-01-01T00:00:00Z"), record)
    assert (found.code, found.runner, found.sure) == (Code.NO_RUNNER, "mac", sure)
    assert text in found.message
    assert found.fix == "On the machine of mac: kakeya-runner serve"
    assert found.is_stuck


@pytest.mark.parametrize(("ago", "alive"), [(0, True), (1020, True), (1021, False), (-3600, True)])
def test_by_the_clocks_a_record_counts_a_little_longer_than_it_says(ago, alive):
    assert seen().is_alive(NOW + ago) is alive


def test_a_clock_that_is_ahead_makes_doubtful_and_not_dead():
    ahead = seen(at="2031-01-01T00:00:00Z")
    assert ahead.is_alive(NOW)
    assert ahead.is_doubtful(NOW)
    assert reason(ahead).sure is False
    assert not replace(ahead, unchanged_s=720.0).is_doubtful(NOW)


def test_the_nearest_runner_has_most_of_the_labels():
    found = reason(
        seen("linux", labels=["Linux"]), seen("mini", labels=["macOS"]), seen("m4", labels=["macOS", "ARM64"]),
        asked=replace(ASKED, labels=frozenset({"macOS", "ARM64", "128gb"})),
    )  # fmt: skip
    assert (found.code, found.runner, found.missing) == (Code.LABELS, "m4", ("128gb",))
    assert "m4 comes nearest and lacks 128gb" in found.message
    assert found.fix.startswith("On the machine of m4, ")


def test_a_runner_that_has_the_labels_and_is_away():
    found = reason(
        seen("mini"), seen("m4", labels=["ARM64"], at="2027-01-15T05:00:00Z"),
        asked=replace(ASKED, labels=frozenset({"ARM64"})),
    )  # fmt: skip
    assert (found.code, found.runner, found.sure) == (Code.LABELS, "m4", False)
    assert "m4 has, last seen 3 h ago" in found.message


def test_a_preset_that_no_runner_has():
    found = reason(seen(), asked=replace(ASKED, preset="pytest-path"))
    assert (found.code, found.runner) == (Code.PRESET, "mac")
    assert "pytest-path; the first to take the request will refuse it" in found.message
    assert reason(seen(presets=None), asked=replace(ASKED, preset="pytest-path")).code is Code.SOON
    assert reason(seen(), asked=replace(ASKED, preset=None)).code is Code.SOON


def test_only_the_preset_of_a_runner_with_the_label_counts():
    runners = (seen("a", labels=["x"], presets={}), seen("b"))
    assert reason(*runners, asked=replace(ASKED, labels=frozenset({"x"}))).code is Code.PRESET


def test_a_branch_that_no_runner_serves():
    found = reason(seen(patterns=["claude/mac-bridge-*"]))
    assert (found.code, found.fix) == (
        Code.BRANCH, "On the machine of mac, add a pattern for it to bus.patterns in the policy."
    )  # fmt: skip
    assert reason(seen(patterns=None)).code is Code.SOON


def test_approval_and_cancellation_come_first():
    held = replace(ASKED, held="waits for approval by the runner's operator", held_by="m4")
    found = reason(asked=held)
    assert (found.code, found.runner, found.is_stuck) == (Code.APPROVAL, "m4", True)
    assert found.fix == f"On the machine of m4: kakeya-runner approve {'c' * 40}"
    assert reason(asked=replace(held, held_by="")).fix.startswith("On the machine of the runner: ")
    assert reason(asked=replace(held, cancelled=True)).code is Code.CANCELLED


def test_maintenance_and_drain():
    found = reason(
        seen(state=RunnerState.MAINTENANCE, reason="new disk"), seen("b", state=RunnerState.DRAINING)
    )
    assert (found.code, found.message) == (Code.MAINTENANCE, "mac is in maintenance")
    assert found.text().startswith("mac is in maintenance (new disk). On the machine of mac: ")
    assert found.text(known=False).startswith("mac is in maintenance. On the machine of mac: ")
    assert found.fix == "On the machine of mac: kakeya-runner maintenance off"
    found = reason(seen(state=RunnerState.DRAINING))
    assert (found.code, found.runner) == (Code.DRAINING, "mac")
    assert reason(seen(state=RunnerState.DRAINING), seen("b")).runner == "b"


def test_who_is_busy_and_with_what():
    found = reason(
        seen(busy_with="mac-bridge/x"), seen("b", busy_with="mac-bridge/y"), place=QueuePosition(ahead=2)
    )
    assert found.code is Code.BUSY
    assert found.message == (
        "mac runs mac-bridge/x, and 1 more runner is busy; at most 2 jobs come before it (requesters take turns)"
    )
    assert reason(seen(busy_with="mac-bridge/x")).message.endswith("; it is next")
    assert reason(seen(busy_with="mac-bridge/x"), seen("b")).runner == "b"


def test_a_place_in_the_queue():
    found = reason(seen(), place=QueuePosition(waiting=9, before=8, ahead=2))
    assert (found.code, found.is_stuck) == (Code.TURN, False)
    assert found.message == "at most 2 jobs come before it (requesters take turns) on mac"


def test_a_runner_with_priorities_makes_no_promise_about_a_place():
    mine = replace(seen(), has_priorities=True)
    place = QueuePosition(waiting=2, before=0, ahead=0)
    found = reason(mine, place=place)
    assert (found.code, found.message) == (
        Code.TURN, "requests for presets of a higher priority may come before it on mac",
    )  # fmt: skip
    assert reason(seen(), place=place).code is Code.SOON
    assert reason(mine, place=QueuePosition(waiting=1, before=0, ahead=0)).code is Code.SOON


@pytest.mark.parametrize(
    ("quota", "place", "code"),
    [
        (Quota(waiting=2), QueuePosition(mine_before=1, ahead=1), Code.TURN),
        (Quota(waiting=2), QueuePosition(mine_before=2, ahead=2), Code.QUOTA),
        (Quota(waiting=9, per_hour=3), QueuePosition(started=2), Code.SOON),
        (Quota(waiting=9, per_hour=3), QueuePosition(started=3), Code.QUOTA),
    ],
)
def test_a_share_that_is_used_up(quota, place, code):
    found = reason(seen(quota=quota), place=place)
    assert found.code is code
    assert reason(seen(quota=quota), seen("b"), place=place).code is not Code.QUOTA


def test_as_data():
    told = json.loads(json.dumps(reason(seen(state=RunnerState.STOPPED)).as_dict()))
    assert told == {
        "code": "no_runner", "message": "no runner is alive: the last one was mac, last seen 0 s ago by its clock; "
        "it was stopped", "fix": "On the machine of mac: kakeya-runner serve", "runner": "mac", "missing": [],
        "sure": True, "said": "", "stuck": True,
    }  # fmt: skip
    assert len(STUCK) == 8


def test_many_names_are_counted():
    found = reason(seen(), asked=replace(ASKED, labels=frozenset("abcde")))
    assert "lacks a, b, c and 2 more" in found.message
    assert span(0) == "0 s"
