"""How many commits a job makes: few while it is silent, and no log line waits for long."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from bridge.common import limits
from bridge.errors import InfrastructureError
from runner.bus.bus import Budget, Pushed
from runner.job.logs import LogStream
from runner.serve import watch_job
from runner.serve.watch_job import Keepalive


class Branch:
    """A lease whose pushes end as the test says, on a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.log = LogStream()
        self.beats: list[float] = []
        self.ends: Pushed | Exception = Pushed.DONE

    def beat(self, step: int) -> Pushed:
        del step
        self.beats.append(self.now - 1000.0)
        if isinstance(self.ends, Exception):
            raise self.ends
        if self.ends is Pushed.DONE:
            self.log.mark_sent(self.log.next_piece())
        return self.ends


@pytest.fixture
def branch(monkeypatch):
    made = Branch()
    monkeypatch.setattr(watch_job.time, "monotonic", lambda: made.now)
    return made


def run(branch, seconds, *, prints=lambda _t: False, per_minute=600, lease_s=120.0, step=lambda _t: 0):
    """Let a job run for so many seconds, looked at ten times a second. Returns when heartbeats went out."""
    bus = SimpleNamespace(budget=Budget(per_minute))
    policy = SimpleNamespace(bus=SimpleNamespace(lease_s=lease_s, poll=(0.1, 0.2)))
    beating = Keepalive(SimpleNamespace(bus=bus, policy=policy), branch)
    for tick in range(int(seconds * 10)):
        branch.now = 1000.0 + tick / 10
        if prints(tick / 10):
            branch.log.add(b"a line\n")
        beating.beat(step(tick / 10))
    return branch.beats


def test_a_silent_job_says_that_it_runs_and_then_keeps_its_lease(branch):
    beats = run(branch, 151)

    assert beats == pytest.approx([0.5, 40.5, 80.5, 120.5], abs=0.11)


def test_a_line_after_a_silence_goes_out_at_once(branch):
    beats = run(branch, 30, prints=lambda t: t == 20)

    assert beats == pytest.approx([0.5, 20.0], abs=0.11)


def test_a_step_that_begins_is_something_to_say(branch):
    beats = run(branch, 30, step=lambda t: int(t >= 10))

    assert beats == pytest.approx([0.5, 10.0], abs=0.11)


def test_a_job_that_talks_all_the_time_is_followed_and_makes_fewer_commits_with_time(branch):
    beats = run(branch, 3600, prints=lambda _t: True)
    pauses = [later - earlier for earlier, later in itertools.pairwise(beats)]

    assert all(pause <= 0.7 for at, pause in zip(beats, pauses, strict=False) if at < 60)
    assert max(pauses) <= 5.2
    assert len(beats) < 1400


def test_a_day_of_output_stays_within_what_readers_look_through():
    longest = watch_job.LONGEST_PAUSE_S
    assert 24 * 3600 / longest + 2000 < limits.COMMITS


def test_a_small_push_budget_spreads_them(branch):
    beats = run(branch, 120, prints=lambda _t: True, per_minute=6)

    assert beats == pytest.approx([15, 30, 45, 60, 75, 90, 105], abs=0.2)


def test_without_push_budget_they_still_keep_the_lease(branch):
    bus = SimpleNamespace(budget=Budget(1))
    beating = Keepalive(
        SimpleNamespace(bus=bus, policy=SimpleNamespace(bus=SimpleNamespace(lease_s=30.0, poll=(0.1, 0.2)))),
        branch,
    )
    for tick in range(310):
        branch.now = 1000.0 + tick / 10
        branch.log.add(b"a line\n")
        beating.beat(0)

    assert branch.beats == pytest.approx([10, 20, 30], abs=0.11)


@pytest.mark.parametrize("ends", [Pushed.FAILED, InfrastructureError("no room"), OSError(28, "no room")])
def test_one_that_fails_ends_no_job_and_is_tried_again(branch, ends):
    branch.ends = ends
    beats = run(branch, 2, prints=lambda t: t == 0)

    assert len(beats) >= 3
    assert branch.log.next_piece().data == b"a line\n"
