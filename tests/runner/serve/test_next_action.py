"""From where a branch stands to what this runner does: every row of the one table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridge.bus import wire
from bridge.bus.history import RequestBranch
from bridge.bus.wire import State
from runner.bus.backoff import Retry
from runner.serve import tracked as module
from runner.serve.dispatch import Action, decide
from runner.serve.tracked import TrackedRequest, Tracker

COMMIT = "a" * 40
FINAL = [state for state in State if state.is_final]


@pytest.fixture
def clock(monkeypatch):
    """A monotonic clock that stands until it is moved."""
    time = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: time.now)
    return time


@pytest.fixture
def context():
    """What `decide` asks of a context: who this runner is, and how many attempts there are."""
    return SimpleNamespace(
        identity=SimpleNamespace(instance="ours"),
        clock=None,  # asked about unsigned answers alone
        ledger=SimpleNamespace(has_written=lambda salt: salt == "written here"),
        policy=SimpleNamespace(
            limits=SimpleNamespace(attempts=3, max_age_s=604_800.0),
            bus=SimpleNamespace(longest_lease_s=900.0),
        ),
    )


def decided(context, request):
    return decide(request, context.policy, context.ledger, context.clock, context.identity.instance)


def branch(
    state=None, *, runner="theirs", salt="written here", token=1, cancel=False, has_foreign_commits=False
):
    """Return a branch that stands like this."""
    at = "2026-01-01T00:00:00Z"
    file = state and wire.StateFile(
        schema_version=2, state=state, branch="b", request=COMMIT, salt=salt, token=token, sequence=1,
        lease_s=10.0, runner=wire.Runner(id="x", instance=runner, version="1"), at=at,
    )  # fmt: skip
    note = wire.CancelFile(schema_version=2, branch="b", request=COMMIT, by="me", at=at) if cancel else None
    return RequestBranch("b", COMMIT, COMMIT, file, note, has_foreign_commits)


def test_a_lease_that_is_longer_than_this_runner_waits_for_lapses_earlier(context, clock):
    held = branch(State.RUNNING)
    endless = replace(held, state=held.state.model_copy(update={"lease_s": 86_400.0}))
    request = TrackedRequest(endless)

    clock.now += 900 * 1.2 - 1
    assert decided(context, request) is Action.WAIT
    clock.now += 2
    assert decided(context, request) is Action.TAKE


ROWS = {
    "new": (branch(), 0, Action.TAKE),
    "new and cancelled": (branch(cancel=True), 0, Action.CANCEL),
    "held by another": (branch(State.RUNNING), 0, Action.WAIT),
    "held by another, nearly lapsed": (branch(State.RUNNING), 11.9, Action.WAIT),
    "held by another, lapsed": (branch(State.RUNNING), 12.1, Action.TAKE),
    "claimed by another, lapsed": (branch(State.CLAIMED), 12.1, Action.TAKE),
    "ours, after a crash": (branch(State.RUNNING, runner="ours"), 0, Action.TAKE),
    "in our name, by another": (branch(State.RUNNING, runner="ours", salt="copied"), 0, Action.WAIT),
    "cancelled while another holds it": (branch(State.RUNNING, cancel=True), 0, Action.WAIT),
    "cancelled, and the holder is gone": (branch(State.RUNNING, cancel=True), 12.1, Action.CANCEL),
    "pushed to, and the holder is gone": (
        branch(State.RUNNING, has_foreign_commits=True),
        12.1,
        Action.SUPERSEDE,
    ),
    "pushed to and cancelled": (
        branch(State.RUNNING, cancel=True, has_foreign_commits=True),
        12.1,
        Action.CANCEL,
    ),
    "handed back": (branch(State.REQUESTED), 0, Action.TAKE),
    "handed back often": (branch(State.REQUESTED, token=9), 0, Action.TAKE),
    "handed back and pushed to": (branch(State.REQUESTED, has_foreign_commits=True), 0, Action.SUPERSEDE),
    "lost too often": (branch(State.RUNNING, token=3), 12.1, Action.LOSE),
    "lost, one attempt left": (branch(State.RUNNING, token=2), 12.1, Action.TAKE),
    "ours, lost too often": (branch(State.CLAIMED, runner="ours", token=3), 0, Action.LOSE),
} | {
    f"{state} and pushed to": (branch(state, has_foreign_commits=True, cancel=True), 99, Action.NOTHING)
    for state in FINAL
}


@pytest.mark.parametrize(("stands", "unchanged_s", "action"), ROWS.values(), ids=ROWS)
def test_where_a_branch_stands_decides_what_is_done(context, clock, stands, unchanged_s, action):
    request = TrackedRequest(stands)
    clock.now += unchanged_s

    assert decided(context, request) is action


def test_a_lease_lapses_by_what_this_runner_saw_and_not_before_it_looked(context, clock):
    clock.now += 1_000_000

    assert decided(context, TrackedRequest(branch(State.RUNNING))) is Action.WAIT


def test_a_heartbeat_begins_the_lease_anew(clock):
    tracker = Tracker(Path(), print)
    tracker.see({"b": "1"})
    clock.now += 5
    tracker.see({"b": "1"})
    assert [request.unchanged_s() for request in tracker] == [5]

    tracker.see({"b": "2"})

    assert [request.unchanged_s() for request in tracker] == [0]


def test_a_branch_that_was_gone_is_seen_anew(clock):
    tracker = Tracker(Path(), print)
    tracker.see({"b": "1"})
    clock.now += 5
    tracker.see({})
    tracker.see({"b": "1"})

    assert [request.unchanged_s() for request in tracker] == [0]


def test_what_fails_is_tried_again_ever_more_rarely(clock):
    retry, waits = Retry(), []
    for _ in range(12):
        retry.failed()
        began = clock.now
        while not retry.is_due:
            clock.now += 0.25
        waits.append(clock.now - began)

    assert waits == sorted(waits)
    assert waits[0] <= 1
    assert waits[-1] == 60
    retry.succeeded()
    assert retry.is_due
    assert retry.failed() == 1
