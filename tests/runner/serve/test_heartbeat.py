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
from runner.serve.pace import Pace
from runner.serve.watch_job import Keepalive


class Branch:
    """A lease whose pushes end as the test says, on a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.log = LogStream()
        self.beats: list[float] = []
        self.ends: Pushed | Exception = Pushed.DONE
        # How many other runners are busy, and when they were counted.
        self.busy = 0
        self.counted: list[float] = []

    def count_busy(self) -> int:
        self.counted.append(self.now - 1000.0)
        return self.busy

    def begin(self, lease_s: float, per_minute: int, claims: int = 1):
        """Return the policy of a claim, after so many pushes of others."""
        budget = Budget(per_minute)
        self.pace = Pace(lease_s, budget, 900.0)
        for _ in range(claims):
            self.pace.plan()
            budget.spend()
        # The lease that the claim announced, and those of the heartbeats.
        self.leases = [self.pace.lease_s]
        self.budget = budget
        return SimpleNamespace(bus=SimpleNamespace(lease_s=lease_s, poll=(0.1, 0.2)), on_stop="finish")

    def beat(self, step: int) -> Pushed:
        del step
        self.leases.append(self.pace.plan())
        self.budget.spend()
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
    beating = Keepalive(None, None, branch, branch.begin(lease_s, per_minute), branch)
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

    assert beats == pytest.approx([0.5, 15.5, 30.5, 60.1, 75.1, 90.1, 105.1], abs=0.3)


@pytest.mark.rows(1)
@pytest.mark.parametrize("busy", [4, 1, 9])
def test_runners_that_are_busy_together_share_the_push_budget(branch, busy):
    branch.busy = busy
    beats = run(branch, 1800, prints=lambda _t: True, per_minute=6)

    assert len(beats) * (1 + busy) <= 6 * 30


@pytest.mark.rows(1)
@pytest.mark.parametrize("busy", [10_000, 1, 29])
@pytest.mark.parametrize("prints", [lambda _t: True, lambda _t: False])
def test_a_shared_budget_ends_no_lease(branch, busy, prints):
    branch.busy = busy
    beats = run(branch, 1800, prints=prints, per_minute=6)

    ends = [0.0, *beats]
    for (earlier, later), lease_s in zip(itertools.pairwise(ends), branch.leases, strict=False):
        assert later - earlier <= min(lease_s, 900.0) * 0.6
    assert ends[-1] > 1800 - 450.2


def test_the_busy_runners_are_counted_now_and_then_and_not_for_a_short_job(branch):
    run(branch, 0.4)
    assert branch.counted == []

    branch.beats.clear()
    run(branch, 300, prints=lambda _t: True)
    pauses = [later - earlier for earlier, later in itertools.pairwise(branch.counted)]
    assert min(pauses) >= 30


def test_a_runner_whose_rivals_have_ended_has_the_whole_budget_again(branch):
    branch.busy = 9
    beating = Keepalive(None, None, branch, branch.begin(120.0, 6), branch)

    def beats(begins, ends):
        before = len(branch.beats)
        for tick in range(int(begins * 10), int(ends * 10)):
            branch.now = 1000.0 + tick / 10
            branch.log.add(b"a line\n")
            beating.beat(0)
        return len(branch.beats) - before

    shared = beats(0, 900)
    branch.busy = 0
    beats(900, 1500)

    assert beats(1500, 2400) > 3 * shared


@pytest.mark.rows(1)
@pytest.mark.parametrize("claims", [1, 2, 3, 5])
@pytest.mark.parametrize("prints", [lambda _t: True, lambda _t: False, lambda t: t % 8 == 0])
def test_no_minute_has_more_pushes_than_the_budget_and_no_lease_runs_out(branch, claims, prints):
    """A claim, with an answer to come. Short jobs may have used up the budget before."""
    for lease_s, per_minute in itertools.product([1, 5, 30, 120, 600], [1, 2, 3, 6, 20, 600]):
        branch.__init__()
        check_pushes(branch, lease_s, per_minute, claims, prints)


def check_pushes(branch, lease_s, per_minute, claims, prints):
    beating = Keepalive(None, None, branch, branch.begin(lease_s, per_minute, claims), branch)
    for tick in range(3400):
        branch.now = 1000.0 + tick / 10
        if prints(tick / 10):
            branch.log.add(b"a line\n")
        beating.beat(0)

    pushes = [0.0] * claims + branch.beats
    for at in branch.beats:
        within = [each for each in pushes if at - 60 < each <= at]
        assert len(within) <= max(per_minute - 1, 1), "one push is left for the answer"
    for lease, began, ends in zip(branch.leases, [0.0, *branch.beats], branch.beats, strict=False):
        assert ends - began < lease


def test_a_lease_that_the_budget_can_keep_is_the_policys(branch):
    run(branch, 339, prints=lambda t: t % 8 == 0, per_minute=6)
    assert set(branch.leases) == {120.0}
    assert len(branch.beats) <= 339 / 60 * 4 + 1


def test_a_short_lease_grows_with_the_job(branch):
    run(branch, 100, per_minute=6, lease_s=6)
    assert branch.leases[:2] == [6, 12]
    assert max(branch.leases) <= 120


@pytest.mark.parametrize("ends", [Pushed.FAILED, InfrastructureError("no room"), OSError(28, "no room")])
def test_one_that_fails_ends_no_job_and_is_tried_again(branch, ends):
    branch.ends = ends
    beats = run(branch, 2, prints=lambda t: t == 0)

    assert len(beats) >= 3
    assert branch.log.next_piece().data == b"a line\n"
