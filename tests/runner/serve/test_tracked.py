"""One record a branch: a new commit makes a new one, and a branch that is gone drops it."""

from __future__ import annotations

import time

import pytest

from bridge.bus.wire import State
from runner.serve.tracked import TrackedRequest, Tracker


@pytest.fixture
def told():
    return []


@pytest.fixture
def tracker(tmp_path, told):
    return Tracker(tmp_path, told.append)


def only(tracker: Tracker) -> TrackedRequest:
    (request,) = tracker
    return request


def test_a_new_commit_makes_a_new_record_in_which_what_is_known_of_the_branch_stays(tracker):
    tracker.see({"b": "1"})
    before = only(tracker)
    before.settle(reason="waits")
    before.is_unadmitted = before.is_harmless = before.was_answered = True
    before.retry.failed()
    before.fault.failed()

    tracker.see({"b": "1", "c": "1"})
    assert before in [*tracker]
    tracker.see({"b": "2"})

    after = only(tracker)
    assert (after.branch.tip, after.why, after.was_answered) == ("2", "waits", True)
    assert (after.settled_until, after.is_unadmitted, after.is_harmless, after.retry.failures) == (
        0,
        False,
        False,
        0,
    )
    assert after.fault.failures == 1


def test_a_branch_that_is_gone_drops_its_record(tracker):
    tracker.see({"b": "1"})
    only(tracker).settle(reason="waits")

    tracker.see({})
    assert [*tracker] == []
    tracker.see({"b": "1"})

    assert (only(tracker).settled_until, only(tracker).why) == (0, "")


def test_a_settled_request_is_due_again_once_its_time_is_over(tracker):
    tracker.see({"b": "1"})
    only(tracker).settle(time.time() + 3600, "asks for labels")
    assert tracker.is_settled
    assert tracker.due({}) == []
    assert tracker.reasons() == {"b": "asks for labels"}

    only(tracker).settle(time.time() - 1)

    assert not tracker.is_settled
    assert tracker.due({}) == [only(tracker)]
    assert tracker.due({"b": "an answer that waits"}) == []


def test_reasons_are_in_the_order_of_turns(tracker):
    tracker.see(dict.fromkeys("abcd", "1"))
    a, b, c, d = tracker
    d.why = "failed here"

    tracker.note_order([a, b, c], [c, a])

    assert [*tracker.reasons()] == ["c", "a", "b", "d"]
    assert "share" in tracker.reasons()["b"]


def test_a_manifest_is_kept_only_while_its_request_is_due(tracker):
    tracker.see({"b": "1"})
    request = only(tracker)
    request.manifest, request.manifest_bytes = object(), 5000
    assert tracker.due({}) == [request]
    assert request.manifest_bytes == 5000

    request.retry.failed()

    assert tracker.due({}) == []
    assert (request.manifest, request.manifest_bytes) == (None, 0)


def test_a_reason_is_news_once(tracker):
    tracker.see({"b": "1"})

    assert [only(tracker).note_wait(reason) for reason in ("x", "x", "y")] == [True, False, True]


def test_who_needs_one_answer_after_another_is_told_of(tracker, told):
    tracker.see({"b": "1"})
    for i in range(5):
        tracker.mark_answered(only(tracker), State.FAILED)
        tracker.mark_answered(only(tracker), None)
        tracker.see({"b": str(i + 2)})

    assert len(told) == 1
    assert "needs one answer after another" in told[0]
