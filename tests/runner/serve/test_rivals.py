"""Several runners compete for requests: a lost claim is cheap, and is not followed by another one at the same place."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack

import pytest

from bridge.bus.wire import State
from runner.admit.manifests import read_candidate
from runner.bus.backoff import WIDEST, Spread
from runner.bus.bus import Bus
from runner.serve import execute
from runner.serve.compose import Composer
from runner.serve.dispatch import Action
from runner.serve.lease import Lease
from runner.serve.queue import mix


def lost(times):
    spread = Spread()
    for _ in range(times):
        spread.lose()
    return spread


def test_a_runner_without_rivals_keeps_the_order():
    assert mix([1, 2, 3], Spread().width) == [1, 2, 3]


def test_each_lost_claim_doubles_the_choice_up_to_a_bound():
    assert [lost(times).width for times in (0, 1, 2, 3, 20)] == [1, 2, 4, 8, WIDEST]


def test_the_first_requests_are_in_any_order_and_the_others_in_theirs():
    firsts = Counter()
    for seed in range(60):
        random.seed(seed)
        mixed = mix(list(range(10)), lost(2).width)
        assert sorted(mixed[:4]) == [0, 1, 2, 3]
        assert mixed[4:] == [4, 5, 6, 7, 8, 9]
        firsts[mixed[0]] += 1
    assert len(firsts) == 4


def test_what_others_hold_keeps_its_place_and_is_no_choice():
    mixed = mix(["held", "a", "held too", "b", "c"], lost(1).width, {"held", "held too"})

    assert (mixed[0], mixed[2], mixed[4]) == ("held", "held too", "c")
    assert sorted(mixed[1:4:2]) == ["a", "b"]


def test_a_runner_whose_rivals_are_gone_returns_to_the_order():
    spread = lost(20)
    for _ in range(40):
        spread.win()

    assert not spread.has_rivals
    assert spread.lost_claims == 20


@pytest.fixture
def pair(host):
    """Two runners on one bus."""
    with ExitStack() as stack:
        yield [stack.enter_context(host.context(name)) for name in ("one", "two")]


@pytest.fixture
def claims(monkeypatch):
    """Record the pushes of branches."""
    pushed, push = [], Bus.push

    def record(bus, branch, commit, *, expect):
        pushed.append(branch)
        return push(bus, branch, commit, expect=expect)

    monkeypatch.setattr(Bus, "push", record)
    return pushed


def take(context, branch, tips):
    """Have a runner claim and run a request of which it read this tip."""
    read = context.keys.reader.read_branch(context.bus.git, branch, tips[branch])
    return Composer(context).dispatcher().apply(read_candidate(context.bus.git, read), Action.TAKE)


@pytest.mark.bus
def test_a_runner_that_lost_a_claim_asks_before_it_claims_again(pair, requester, claims):
    one, two = pair
    branches = [requester.send(requester.manifest()) for _ in range(3)]
    tips = {context.policy.id: context.bus.fetch() for context in pair}
    for branch in branches[:2]:
        assert take(one, branch, tips["one"])
    claims.clear()

    assert take(two, branches[0], tips["two"]) is None
    assert claims == [branches[0]]  # it had no reason to ask, and lost
    assert take(two, branches[1], tips["two"]) is None
    assert claims == [branches[0]]  # it asked, and pushed nothing
    assert take(two, branches[2], tips["two"])
    assert two.spread.lost_claims == 2


@pytest.mark.bus
def test_a_claim_that_may_be_lost_starts_no_supervisor(pair, requester, monkeypatch):
    one, two = pair
    branches = [requester.send(requester.manifest()) for _ in range(2)]
    tips, pushed_when = two.bus.fetch(), []
    one.bus.fetch()
    started, start = [], execute.Ready
    monkeypatch.setattr(execute, "Ready", lambda kept: started.append(kept) or start(kept))
    advance = Lease.advance

    def record(lease, state, **more):
        pushed_when.append(len(started))
        return advance(lease, state, **more)

    monkeypatch.setattr(Lease, "advance", record)
    # The bus's readers lag, so the second runner does not see that the first one was faster.
    monkeypatch.setattr(two.bus, "has_moved", lambda *_: False)
    assert take(one, branches[0], tips)
    two.spread.lose()
    assert take(two, branches[0], tips) is None
    assert take(two, branches[1], tips)

    # The first supervisor started beside the claim; the last one after it, and the lost claim had none.
    assert pushed_when == [1, 1, 1]
    assert len(started) == 2


@pytest.mark.bus
def test_after_a_lost_claim_the_bus_is_listed_again(pair, requester, monkeypatch):
    one, two = pair
    for _ in range(3):
        requester.send(requester.manifest())
    poller, fetch = Composer(two).poller(), two.bus.fetch
    tips = fetch()
    # The second runner reads the bus before the first one has served it, and works on what it read.
    rival = Composer(one).poller()
    while rival.poll():
        pass
    monkeypatch.setattr(two.bus, "fetch", lambda: tips)

    assert not poller.poll()

    assert poller.has_more
    assert two.spread.lost_claims == 1


@pytest.mark.bus
def test_a_claim_without_a_supervisor_is_handed_back_at_once(pair, requester, monkeypatch):
    runner = pair[0]
    branch = requester.send(requester.manifest())
    tips = runner.bus.fetch()
    runner.spread.lose()

    def refuse(_kept):
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(execute, "Ready", refuse)
    with pytest.raises(BlockingIOError):
        take(runner, branch, tips)

    tips = runner.bus.fetch()
    read = runner.keys.reader.read_branch(runner.bus.git, branch, tips[branch])
    assert read.current_state is State.REQUESTED
