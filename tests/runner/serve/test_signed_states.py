"""Which states count for a runner whose policy lists its fleet's keys, at what cost, and what is refused at start."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridge.bus import objects, wire
from bridge.bus.history import RequestBranch
from bridge.bus.wire import State
from bridge.client import Client
from bridge.common import limits
from bridge.errors import PolicyError
from bridge.requests.status import NOT_SIGNED
from bridge.verify import signed_history
from bridge.verify.signed_history import Reader
from runner.admit.admission import keeps_unsigned_answer
from runner.bus.bus import Pushed
from runner.policy import load_policy
from runner.serve import tracked as deciding
from runner.serve.compose import Composer
from runner.serve.dispatch import Action, decide
from runner.serve.lease import Lease
from runner.serve.loop import once
from runner.serve.tracked import TrackedRequest, Tracker
from runner.state import signing_key
from runner.state.recover import open_ledger

pytestmark = pytest.mark.bus

STRANGER = objects.Identity("A Stranger", "stranger@example.invalid")


@pytest.fixture
def fleet(keyed):
    return {"trust": {"runners": [str(keyed.key())]}}


@pytest.fixture
def context(keyed, fleet):
    with keyed.context(**fleet) as context:
        yield context


@pytest.fixture
def run(client):
    return client.run("noop")


def put(forger, run, files):
    """Put a commit with these files on top of a branch."""
    return forger.put(run.branch, files, forger.tip(run.branch))


def said(run, **more):
    """Return a state as anyone can write it."""
    return json.dumps(
        {
            "schema_version": 2, "state": "claimed", "branch": run.branch, "request": run.commit,
            "salt": secrets.token_hex(8), "token": 9, "sequence": 9, "lease_s": 10.0,
            "runner": {"id": "x", "instance": "x", "version": "0"}, "at": "2026-01-01T00:00:00Z",
        } | more
    ).encode()  # fmt: skip


def look(context, run):
    """Read a branch as the runner does."""
    return context.keys.reader.read_branch(context.bus.git, run.branch, context.bus.tip(run.branch))


def claim(context, run):
    """Claim a request and return the lease."""
    lease = Lease(context.author, look(context, run))
    assert lease.advance(State.CLAIMED) is Pushed.DONE
    return lease


def test_a_state_of_this_runner_counts(context, run):
    lease = claim(context, run)

    branch = look(context, run)

    assert (branch.state.state, branch.state_commit, branch.unsigned) == (State.CLAIMED, lease.tip, None)
    assert (branch.request, branch.has_foreign_commits) == (run.commit, False)


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_unsigned_states_are_passed_over_down_to_the_request(context, run, forger, depth):
    for i in range(depth):
        put(forger, run, {wire.STATE: said(run, sequence=i, request="0" * 40)})

    branch = look(context, run)

    assert (branch.state, branch.state_commit, branch.unsigned) == (None, None, State.CLAIMED)
    assert (branch.request, branch.tip, branch.has_foreign_commits) == (
        run.commit,
        forger.tip(run.branch),
        False,
    )


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_unsigned_states_are_passed_over_down_to_a_signed_one(context, run, forger, depth):
    lease = claim(context, run)
    for i in range(depth):
        put(forger, run, {wire.STATE: said(run, sequence=i)})

    branch = look(context, run)

    assert (branch.state_commit, branch.token, branch.unsigned, branch.has_foreign_commits) == (
        lease.tip,
        1,
        State.CLAIMED,
        False,
    )
    assert lease.owns_state(branch)
    assert not lease.is_fenced(branch)


@pytest.mark.parametrize("forged", [0, 1])
def test_a_commit_of_somebody_else_s_supersedes_as_it_does_without_keys(context, run, forger, forged):
    lease = claim(context, run)
    for _ in range(forged):
        put(forger, run, {wire.STATE: said(run)})
    put(forger, run, {"file": b"changed"})

    branch = look(context, run)

    assert (branch.state_commit, branch.has_foreign_commits, branch.cancel) == (lease.tip, True, None)
    assert not lease.owns_state(branch)


def test_a_commit_that_removes_the_state_hides_no_signed_one(context, run, forger):
    lease = claim(context, run)
    put(forger, run, {wire.STATE: None})

    branch = look(context, run)

    assert (branch.state_commit, branch.token, branch.has_foreign_commits) == (lease.tip, 1, True)


@pytest.mark.parametrize("blob", [b"not a state", b" " * (wire.MAX_STATE + 1)])
def test_what_is_no_state_is_a_commit_like_any_other(context, run, forger, blob):
    lease = claim(context, run)
    put(forger, run, {wire.STATE: blob})

    branch = look(context, run)

    assert (branch.state_commit, branch.has_foreign_commits, branch.unsigned) == (lease.tip, True, None)


@pytest.mark.parametrize("forged", [0, 1])
def test_a_cancellation_counts_also_above_and_below_an_unsigned_state(context, client, run, forger, forged):
    claim(context, run)
    for _ in range(forged):
        put(forger, run, {wire.STATE: said(run)})
    client.cancel(run.branch)
    for _ in range(forged):
        put(forger, run, {wire.STATE: said(run)})

    branch = look(context, run)

    assert branch.has_foreign_commits
    assert branch.cancel is not None
    assert branch.request == run.commit


def test_a_cancellation_of_another_request_counts_for_none(context, run, forger):
    claim(context, run)
    put(forger, run, {wire.STATE: said(run, request="0" * 40)})
    note = wire.CancelFile(
        schema_version=2, branch=run.branch, request="0" * 40, by="me", at="2026-01-01T00:00:00Z"
    )
    put(forger, run, {wire.CANCEL: note.to_bytes()})

    branch = look(context, run)

    assert (branch.cancel, branch.has_foreign_commits) == (None, True)


def test_a_cancellation_before_the_claim_counts_below_an_unsigned_state(context, client, run, forger):
    client.cancel(run.branch)
    put(forger, run, {wire.STATE: said(run, state="running"), wire.CANCEL: None})

    branch = look(context, run)

    assert branch.cancel is not None
    assert (branch.request, branch.state) == (run.commit, None)
    assert (
        decide(
            TrackedRequest(branch), context.policy, context.ledger, context.clock, context.identity.instance
        )
        is Action.CANCEL
    )


def test_a_signed_commit_that_is_too_large_for_a_runner_s_is_none(context, run, monkeypatch):
    claim(context, run)
    monkeypatch.setattr(signed_history, "SIGNED_COMMIT_BYTES", 100)

    assert look(context, run).unsigned is State.CLAIMED


def test_the_search_ends_at_its_limit(context, run, forger, monkeypatch):
    lease = claim(context, run)
    for i in range(7):
        put(forger, run, {wire.STATE: said(run, sequence=i)})
    assert look(context, run).state_commit == lease.tip

    monkeypatch.setattr(limits, "UNSIGNED", 7)
    branch = Reader(context.keys.reader.keys).read_branch(context.bus.git, run.branch, forger.tip(run.branch))

    assert (branch.state_commit, branch.state, branch.request) == (None, None, forger.tip(run.branch))


def test_a_branch_that_cannot_be_read_stays_so(context, run, forger, monkeypatch):
    tip = context.bus.tip(run.branch)
    monkeypatch.setattr(limits, "TREE_BYTES", 1)
    monkeypatch.setitem(objects.MAX_BYTES_BY_KIND, "tree", 1)

    assert context.keys.reader.read_branch(context.bus.git, run.branch, tip).too_large


def test_a_signature_is_verified_once_for_each_commit(context, run, monkeypatch):
    claim(context, run)
    seen, is_signed = [], signed_history.is_signed

    def count(*args):
        seen.append(args)
        return is_signed(*args)

    monkeypatch.setattr(signed_history, "is_signed", count)

    for _ in range(3):
        assert look(context, run).token == 1
    assert len(seen) == 1
    monkeypatch.setattr(limits, "BRANCHES", 0)
    assert look(context, run).token == 1
    assert len(seen) == 2


def test_a_bounded_search_goes_on_in_the_next_call_behind_new_branches(context, client, forger):
    deep = [client.run("noop") for _ in range(3)]
    claim(context, deep[0])
    for i in range(10):
        for run in deep:
            put(forger, run, {wire.STATE: said(run, sequence=i)})
    new = client.run("noop")
    tips = {run.branch: context.bus.tip(run.branch) for run in (*deep, new)}
    git, reader = context.bus.git, Reader(signing_key.reader(context.policy).keys)

    calls = [reader.read_branches(git, tips, commits=4)]
    assert new.branch in calls[0]
    assert not {run.branch for run in deep} & calls[0].keys()
    while len(calls[-1]) < len(tips) and len(calls) < 20:
        calls.append(reader.read_branches(git, tips, commits=4))

    assert 3 <= len(calls) < 20
    assert calls[-1] == Reader(reader.keys).read_branches(git, tips)
    assert calls[-1][deep[0].branch].state_commit
    assert not calls[-1][deep[1].branch].state_commit


def test_a_poll_bounds_the_search_and_serves_new_requests_meanwhile(context, client, forger, monkeypatch):
    monkeypatch.setattr(limits, "UNSIGNED_A_POLL", 0)
    buried = client.run("noop")
    for i in range(3):
        put(forger, buried, {wire.STATE: said(buried, sequence=i)})
    new = client.run("noop")
    poller = Composer(context).poller()

    assert poller.poll()
    assert new.status().state is State.SUCCEEDED
    assert {
        "branch": buried.branch,
        "why": "its history is being read",
    } in context.operator.status_file.facts.queue
    assert not poller.poll()
    monkeypatch.setattr(limits, "UNSIGNED_A_POLL", 100)
    assert poller.poll()
    assert buried.status().state is State.SUCCEEDED


def test_an_unsigned_state_does_not_renew_a_lease(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(deciding.time, "monotonic", lambda: clock.now)
    tracker = Tracker(Path(), print)
    tracker.see({"b": "claim"})
    (request,) = tracker
    assert request.unchanged_s("claim") == 0
    for i in range(3):
        clock.now += 5
        tracker.see({"b": f"forged {i}"})
        (request,) = tracker
        assert request.unchanged_s("claim") == 5 * (i + 1)
    assert request.unchanged_s("heartbeat") == 0
    tracker.see({})
    tracker.see({"b": "claim"})
    (request,) = tracker
    assert request.unchanged_s("claim") == 0


def test_an_answer_from_before_the_keys_is_left_as_it_is(keyed, client, run, fleet, forger):
    keyed.handle(signed=False)
    answer = forger.tip(run.branch)

    keyed.handle(**fleet)

    assert forger.tip(run.branch) == answer


def test_given_alone_an_answer_from_before_the_keys_is_left_as_it_is(keyed, client, forger):
    run = client.run("noop")
    keyed.handle(signed=False)
    answer = forger.tip(run.branch)

    with keyed.context(trust={"runners": [str(keyed.key())]}) as context:
        assert once(context, run.branch) is State.SUCCEEDED
    assert forger.tip(run.branch) == answer


@pytest.mark.parametrize(
    ("published", "days", "doubtful", "left"),
    [
        (None, 0, False, False), (None, 8, False, True), (None, 8, True, False), ("x", 0, False, True),
    ],
)  # fmt: skip
def test_an_unsigned_answer_is_left_alone_if_it_is_ours_or_too_old(published, days, doubtful, left):
    at = int(deciding.time.time() - days * 86_400)
    name = f"mac-bridge/noop-{at}-abcdef"
    ledger = SimpleNamespace(entry=lambda _: published and SimpleNamespace(published=published))
    keeps = partial(keeps_unsigned_answer, ledger, SimpleNamespace(is_doubtful=lambda: doubtful), 7 * 86_400)
    branch = RequestBranch(name, "t", "r", None, None, has_foreign_commits=False, unsigned=State.FAILED)

    assert keeps(branch) is left
    assert not keeps(replace(branch, unsigned=State.RUNNING))
    assert not keeps(replace(branch, unsigned=None))
    if not published:
        assert not keeps(replace(branch, name="odd"))


def test_a_ledger_that_is_made_anew_learns_nothing_from_unsigned_states(context, run, forger, tmp_path):
    put(forger, run, {wire.STATE: said(run, state="succeeded")})
    context.bus.fetch()
    for reader, known in ((Reader(), True), (context.keys.reader, False)):
        path = tmp_path / f"{known}.sqlite"
        ledger = open_ledger(path, context.bus.git, tmp_path / "none.git", lambda _: None, reader)
        assert (ledger.entry(run.branch) is not None) is known
        ledger.close()


def test_a_runner_without_a_key_does_not_start_if_keys_are_listed(keyed):
    theirs = {"trust": {"runners": [str(keyed.key("two"))]}}

    with pytest.raises(PolicyError, match="has no key to sign its own states"), keyed.context(**theirs):
        pass


@pytest.mark.parametrize("content", [None, "no key"])
def test_a_listed_key_that_cannot_be_read_is_an_error(keyed, tmp_path, content):
    keyed.key()
    file = tmp_path / "listed.pub"
    if content:
        file.write_text(content)

    with pytest.raises(PolicyError, match=r"listed\.pub"), keyed.context(trust={"runners": [str(file)]}):
        pass


def test_a_listed_key_that_others_may_write_to_is_refused(keyed):
    key = keyed.key()
    key.chmod(0o666)

    with pytest.raises(PolicyError, match="which decides what the list of runners' keys is"):
        load_policy(keyed.runners.policy(trust={"runners": [str(key)]}))


def test_the_path_of_a_listed_key_is_whole(keyed):
    with pytest.raises(PolicyError, match="absolute"):
        load_policy(keyed.runners.policy(trust={"runners": ["here.pub"]}))


def test_a_fleet_s_file_may_hold_several_keys(keyed, tmp_path):
    file = tmp_path / "fleet.pub"
    file.write_text(keyed.key().read_text() + keyed.key("two").read_text())
    policy = load_policy(keyed.runners.policy(trust={"runners": [str(file)]}))

    assert signing_key.reader(policy).has_keys
    assert {key.id for key in signing_key.reader(policy).keys} == {
        signing_key.public_key(keyed.runners.folder / f"state-{name}").id for name in ("one", "two")
    }


def test_a_poll_goes_on_while_a_branch_is_settled(context, run, forger):
    poller = Composer(context).poller()
    assert poller.poll()
    put(forger, run, {wire.STATE: said(run)})

    assert not poller.poll()
    assert look(context, run).current_state is State.SUCCEEDED


@pytest.mark.long
def test_a_client_with_a_pinned_key_marks_states_that_it_did_not_sign(clone, keyed, client, forger):
    honest, forged, waiting = (client.run("noop") for _ in range(3))
    keyed.handle()
    put(forger, forged, {wire.STATE: said(forged, state="succeeded", detail="all is well")})
    put(forger, waiting, {wire.STATE: said(waiting, state="lost")})
    client.run("noop")
    pinned = Client(clone, public_key=keyed.key())
    marked = f"{NOT_SIGNED}; all is well"

    assert NOT_SIGNED not in pinned.status(honest.branch).detail
    assert pinned.status(forged.branch).detail == marked
    assert {one.branch for one in pinned.list() if NOT_SIGNED in one.detail} == {
        forged.branch,
        waiting.branch,
    }
    assert NOT_SIGNED not in "".join(one.detail for one in client.list())
    assert NOT_SIGNED not in pinned.wait(honest.branch, 10).detail
