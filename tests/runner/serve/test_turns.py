"""Whose turn it is: no requester keeps the others waiting, however many requests it pushes."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from bridge.bus import objects, wire
from bridge.bus.history import View
from bridge.manifest import parse_time
from bridge.system.git import Git
from runner.serve.poll import Rounds
from runner.serve.turns import take_turns
from runner.state.ledger import Ledger

BEGAN = 1_700_000_000


def view(requester, at):
    branch = f"mac-bridge/noop-{BEGAN + at}-{at:06x}"
    return View(branch, requester, requester, None, None, foreign=False)


def turns(asked, last=()):
    """Return the requesters in turn; `asked` names them in the order of their requests."""
    views = [view(name, at) for at, name in enumerate(asked)]
    return [v.request for v in take_turns(views, lambda v: tuple(v.request.split(":")), Counter(dict(last)))]


@pytest.mark.parametrize(
    ("asked", "served"),
    [
        (["a:x", "a:x", "a:x"], ["a:x", "a:x", "a:x"]),
        (["a:x", "a:x", "a:x", "b:y"], ["a:x", "b:y", "a:x", "a:x"]),
        (["a:x", "b:y", "c:z", "a:x"], ["a:x", "b:y", "c:z", "a:x"]),
        # Many names under one prefix are still one prefix.
        (["a:1", "a:2", "a:3", "b:y", "b:y"], ["a:1", "b:y", "a:2", "b:y", "a:3"]),
        # Below a prefix the names take turns too.
        (["a:1", "a:1", "a:1", "a:2"], ["a:1", "a:2", "a:1", "a:1"]),
    ],
)
def test_requesters_take_turns_with_their_oldest_requests(asked, served):
    assert turns(asked) == served


def test_who_had_no_turn_for_longest_begins():
    last = {("a",): 3, ("a", "x"): 3, ("b",): 2, ("b", "y"): 2}

    assert turns(["a:x", "a:x", "b:y", "c:z"], last.items()) == ["c:z", "b:y", "a:x", "a:x"]


def put_requests(bus, requested_by, count, *, prefix="mac-bridge/", began=BEGAN):
    """Put requests for `noop` on the bus, older ones first, and return their branches."""
    git = Git.isolated(bus)
    head = git.text("rev-parse", "refs/heads/main")
    who = objects.Identity("R", "r@example.invalid")
    branches, updates = [], []
    for i in range(count):
        nonce = f"{began + i}-{i:06x}"
        manifest = {"schema_version": 1, "preset": "noop", "params": {}, "ref": "main",
                    "requested_by": requested_by, "nonce": nonce}  # fmt: skip
        if i == 0:
            tree = objects.overlay(git, f"{head}^{{tree}}", {wire.REQUEST: json.dumps(manifest).encode()})
            other = git.text("ls-tree", tree, "--", "readme.txt", "tests")
        blob = objects.write_blob(git, json.dumps(manifest).encode())
        folder = git.text("mktree", stdin=f"100644 blob {blob}\trequest.json\n")
        tree = git.text("mktree", stdin=f"{other}\n040000 tree {folder}\t{wire.FOLDER}\n")
        branches.append(f"{prefix}noop-{nonce}")
        updates.append(f"create refs/heads/{branches[-1]} {objects.commit(git, tree, [head], 'r', who)}\n")
    git("update-ref", "--stdin", stdin="".join(updates))
    return branches


@pytest.fixture
def now():
    """A time for requests, not too long ago."""
    import time  # noqa: PLC0415 - used here alone

    return int(time.time()) - 3600


def serve_some(keyed, rounds, **policy):
    with keyed.session(**policy) as session:
        polls = Rounds(session)
        for _ in range(rounds):
            polls.next()


def answered(bus, branches):
    git = Git.isolated(bus)
    return [b for b in branches if objects.list_tree(git, f"refs/heads/{b}", wire.RESULT)]


@pytest.mark.bus
def test_a_flood_of_one_requester_does_not_keep_another_waiting(bus, keyed, now):
    flood = put_requests(bus, "flood", 300, began=now)
    (other,) = put_requests(bus, "someone", 1, began=now + 1000)

    serve_some(keyed, 2)

    assert answered(bus, [other]) == [other]
    assert len(answered(bus, flood)) == 1
    assert any("300 requests of mac-bridge/ flood wait; 100 are considered at once" in t for t in keyed.told)


@pytest.mark.bus
def test_a_requester_who_takes_many_names_under_one_prefix_gains_nothing(bus, keyed, now):
    for i in range(6):
        put_requests(bus, f"flood {i}", 1, began=now + 10 * i)
    (other,) = put_requests(bus, "someone", 1, prefix="claude/mac-bridge-", began=now + 1000)

    serve_some(keyed, 2)

    assert answered(bus, [other]) == [other]


@pytest.mark.bus
def test_row_33_folders_below_a_pattern_take_every_other_turn_at_most(bus, keyed, now):
    for i in range(40):
        put_requests(bus, "flood", 1, prefix=f"mac-bridge/x{i}/", began=now + 10 * i)
    honest = put_requests(bus, "someone", 2, began=now + 1000)

    serve_some(keyed, 4)

    assert answered(bus, honest) == honest


def test_row_33_a_name_that_is_new_queues_behind_those_that_are_here(bus, keyed, now):
    """New names without end would always be the ones that had no turn for longest."""
    honest = put_requests(bus, "someone", 2, began=now)
    with keyed.session() as session:
        polls = Rounds(session)
        for i in range(6):
            put_requests(bus, f"flood {i}", 1, prefix="mac-bridge/", began=now - 100 - 10 * i)
            polls.next()

    assert answered(bus, honest) == honest


@pytest.mark.bus
def test_more_than_the_quota_of_an_hour_waits_and_is_not_refused(bus, keyed, now):
    many = put_requests(bus, "many", 4, began=now)
    (other,) = put_requests(bus, "someone", 1, began=now + 1000)
    limits = {"per_requester": {"per_hour": 2}}

    serve_some(keyed, 5, limits=limits)
    assert answered(bus, many) == many[:2]
    assert answered(bus, [other]) == [other]

    # Also after a restart: the count is in the ledger.
    serve_some(keyed, 2, limits=limits)
    assert answered(bus, many) == many[:2]

    serve_some(keyed, 2)
    assert answered(bus, many) == many


def test_turns_of_more_than_a_day_ago_are_forgotten(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    at = parse_time("2026-01-01T00:00:00Z").timestamp()
    ledger.took("a", at)
    ledger.took("a", at + 100_000)

    assert ledger.taken_between(0, at + 100_000) == {"a": 1}
    ledger.close()
