"""Requests that this runner turns down, however many, do not delay the ones that it runs."""

from __future__ import annotations

import json
import time

import pytest

from bridge.bus import wire
from bridge.system.git import Git
from runner.serve.compose import Composer
from tests.runner.serve.test_turns import answered, put_requests
from tests.trees import list_tree

pytestmark = [pytest.mark.bus, pytest.mark.long]

FLOOD = 30


@pytest.fixture
def now():
    return int(time.time()) - 3600


def put_flood(bus, now, count=FLOOD):
    """Put requests for code of the requester's own, each under a name of its own, and return their branches."""
    return [put_requests(bus, f"flood {i}", 1, began=now + i, preset="here")[0] for i in range(count)]


def held(bus, branches):
    git = Git.isolated(bus)
    return [b for b in branches if list_tree(git, f"refs/heads/{b}", wire.STATE)]


@pytest.mark.parametrize("unapproved", ["refuse", "hold"])
def test_a_flood_that_is_turned_down_delays_no_request_that_runs(bus, trusting, now, unapproved, monkeypatch):
    monkeypatch.setattr("runner.serve.scheduler.BUDGET_S", 60.0)
    flood = put_flood(bus, now)
    (honest,) = put_requests(bus, "someone", 1, began=now + 1000, preset="installed")
    with trusting.keyed.context(**trusting.policy(unapproved=unapproved)) as context:
        Composer(context).poller().poll()

    assert answered(bus, [honest]) == [honest]
    assert held(bus, flood) == []


@pytest.mark.parametrize("unapproved", ["refuse", "hold"])
def test_a_request_that_comes_later_is_run_by_the_next_poll(bus, trusting, now, unapproved):
    put_flood(bus, now)
    with trusting.keyed.context(**trusting.policy(unapproved=unapproved)) as context:
        poller = Composer(context).poller()
        poller.poll()
        while unapproved == "refuse" and not poller.poll():
            pass
        (honest,) = put_requests(bus, "someone", 1, began=now + 1000, preset="installed")
        while poller.has_more:
            poller.poll()
        poller.poll()

    assert answered(bus, [honest]) == [honest]


def test_what_is_turned_down_has_its_answer_while_requests_that_run_keep_coming(bus, trusting, now):
    flood = put_flood(bus, now, 4)
    with trusting.keyed.context(**trusting.policy()) as context:
        poller = Composer(context).poller()
        for i in range(10):
            put_requests(bus, "someone", 1, began=now + 1000 + i, preset="installed")
            poller.poll()

    assert answered(bus, flood) == flood


def test_all_that_wait_for_an_approval_are_told_so_in_parts(bus, trusting, now, monkeypatch):
    monkeypatch.setattr("runner.serve.scheduler.BUDGET_S", 0.0)
    flood = put_flood(bus, now, 6)
    with trusting.keyed.context(**trusting.policy(unapproved="hold")) as context:
        poller = Composer(context).poller()
        poller.poll()
        few = len(held(bus, flood))
        for _ in range(5):
            poller.poll()

    assert few <= 1
    assert held(bus, flood) == flood


@pytest.mark.parametrize("kind", ["unapproved", "claimed"])
def test_requests_that_wait_for_others_use_up_no_quota(bus, trusting, forger, now, kind):
    """A stranger pushes them under an honest requester's name, and says that they are older."""
    if kind == "unapproved":
        put_requests(bus, "someone", 6, began=now, preset="here")
    else:
        for branch in put_requests(bus, "someone", 6, began=now, preset="installed"):
            claim = {
                "schema_version": 2, "state": "claimed", "branch": branch, "request": forger.tip(branch),
                "salt": "0", "token": 1, "sequence": 1, "lease_s": 900.0, "at": "now",
                "runner": {"id": "nobody", "instance": "0" * 16, "version": "0"},
            }  # fmt: skip
            forger.put(branch, {wire.STATE: json.dumps(claim).encode()}, forger.tip(branch))
    (honest,) = put_requests(bus, "someone", 1, began=now + 1000, preset="installed")
    policy = trusting.policy(unapproved="hold") | {"limits": {"per_requester": {"waiting": 3}}}
    with trusting.keyed.context(**policy) as context:
        poller = Composer(context).poller()
        for _ in range(5):
            poller.poll()

    assert answered(bus, [honest]) == [honest]
