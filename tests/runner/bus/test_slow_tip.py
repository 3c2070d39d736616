"""A branch whose newest commit takes minutes to come: its answer waits, and nothing else does."""

from __future__ import annotations

import os
import threading
import time
from types import SimpleNamespace

import pytest

from bridge.bus import objects
from bridge.bus.wire import State
from bridge.common import limits
from bridge.errors import GitError, InfrastructureError
from bridge.system.git import NETWORK_TIMEOUT, Git
from bridge.system.process import Child
from runner.bus import backoff, transfer
from runner.bus import fetch as fetching
from runner.bus.bus import Bus, Pushed
from runner.bus.stale_files import temporary_packs
from runner.bus.transfer import SlowError
from runner.serve.compose import Composer

pytestmark = pytest.mark.bus

STRANGER = objects.Identity("A Stranger", "stranger@example.invalid")


@pytest.fixture
def endless(monkeypatch, tmp_path):
    """Fetches of what is named here do not end while the file is there; then they fail once."""
    names: set[str] = set()
    flag = tmp_path / "endless"
    flag.touch()
    start = transfer.start_fetch

    def started(git, url, *commits, at=""):
        if not flag.exists() or names.isdisjoint(commits):
            return start(git, url, *commits, at=at)
        started.times += 1
        argv = ("/bin/sh", "-c", 'while [ -e "$0" ]; do sleep 0.05; done; exit 1', str(flag))
        return Child(argv, env={"PATH": os.environ["PATH"]}, own_session=True, error=GitError)

    started.times = 0
    started.names, started.flag = names, flag
    monkeypatch.setattr(transfer, "start_fetch", started)
    monkeypatch.setattr(limits, "TIP_S", 0.5)
    monkeypatch.setattr(fetching, "PAUSES", 20)
    return started


def push_upon(bus, branch, upon):
    git = Git.isolated(bus)
    commit = objects.commit(git, git.text("rev-parse", f"{upon}^{{tree}}"), [upon], "x\n", STRANGER)
    git("update-ref", f"refs/heads/{branch}", commit, upon)
    return commit


def test_a_branch_that_does_not_come_is_given_up_and_leaves_nothing(host, requester, bus, endless):
    branch = requester.send(requester.manifest())
    with host.context() as context:
        before = context.bus.fetch()[branch]
        endless.names.add(push_upon(bus, branch, before))
        (context.bus.git.directory / "objects" / "pack" / "tmp_pack_x").touch()

        with pytest.raises(InfrastructureError, match="takes too long"):
            context.bus.tip(branch)
        assert context.bus.push(branch, before, expect="0" * 40) is Pushed.FAILED

        # It was given up a moment ago, and is not asked for again at once.
        assert endless.times == 1
        assert list(temporary_packs(context.bus.git.directory)) == []


@pytest.mark.long
def test_row_82_an_answer_waits_for_a_slow_branch_and_others_do_not(
    host, requester, bus, endless, monkeypatch
):
    slow = requester.send(requester.manifest())
    push = Bus.push

    def overtaken(self, branch, commit, *, expect):
        if branch == slow and self.git.text("log", "-1", "--format=%s", commit).startswith(
            "mac-bridge results"
        ):
            monkeypatch.setattr(Bus, "push", push)
            endless.names.add(push_upon(bus, branch, expect))
        return push(self, branch, commit, expect=expect)

    monkeypatch.setattr(Bus, "push", overtaken)
    with host.context() as context:
        poller = Composer(context).poller()
        poller.poll()
        assert endless.times == 1
        other = requester.send(requester.manifest())
        until = time.monotonic() + 120
        while host.result(other) is None and time.monotonic() < until:
            poller.poll()
        assert host.result(other).state is State.SUCCEEDED
        assert host.result(slow) is None
        times = endless.times
        for _ in range(3):
            poller.poll()
        # It comes beside the polls now.
        assert endless.times == times

        endless.flag.unlink()
        while host.result(slow) is None and time.monotonic() < until:
            poller.poll()
            time.sleep(0.1)
        assert host.result(slow).state is State.SUCCEEDED


@pytest.mark.long
def test_slow_branches_do_not_starve_one_that_came_with_them(host, requester, bus, endless, monkeypatch):
    with host.context() as context:
        fetch = context.bus.fetch
        requester.send(requester.manifest())
        fetch()
        # As in operation, one fetch takes longer than a poll searches for bad branches.
        monkeypatch.setattr(limits, "SEARCH_S", 0.0)
        slow = [requester.push(requester.commit({"x": b"%d" % i}), f"mac-bridge/x{i}") for i in range(2)]
        endless.names.update(slow)
        honest = requester.send(requester.manifest())

        until = time.monotonic() + 120
        while honest not in fetch():
            assert time.monotonic() < until

        # What comes later does not wait until the slow ones have come.
        later = requester.send(requester.manifest())
        while later not in fetch():
            assert time.monotonic() < until
        assert endless.flag.exists()


def test_a_commit_that_needs_too_much_memory_is_refused():
    said = b"fatal: Out of memory, malloc failed (tried to allocate 1300000001 bytes)\nfatal: unpack-objects failed\n"
    error = transfer.explain_failure(GitError(("git",), 128, b"", said))
    assert error.code == "hostile_objects"


def test_the_end_of_what_comes_beside_the_polls_is_noticed_without_waiting():
    child = Child(("true",), env={"PATH": os.environ["PATH"]})
    try:
        until = time.monotonic() + 60
        while not child.ended(0.0):
            assert time.monotonic() < until
            time.sleep(0.01)
    finally:
        child.close()


def test_a_slow_branch_that_comes_into_an_empty_store_delays_no_other(host, requester, endless, monkeypatch):
    """Nothing else may be there for a while: that is no reason to wait for it."""
    slow = requester.send(requester.manifest())
    endless.names.add(requester.git.text("rev-parse", f"refs/remotes/origin/{slow}"))
    monkeypatch.setattr(limits, "FETCH_S", 0.5)
    with host.context() as context:
        assert context.bus.fetch() == {}
        monkeypatch.setattr(limits, "FETCH_S", 60.0)
        honest = requester.send(requester.manifest())

        assert [*context.bus.fetch()] == [honest]


@pytest.mark.long
def test_once_the_first_history_is_there_what_was_slow_for_it_is_asked_for_at_once(
    keyed, requester, http_bus, monkeypatch
):
    sent = [requester.send(requester.manifest()) for _ in range(3)]
    event = threading.Event()
    for branch in sent:
        http_bus.held[requester.git.text("rev-parse", f"refs/remotes/origin/{branch}")] = event
    monkeypatch.setattr(limits, "FETCH_S", 0.5)
    monkeypatch.setattr(fetching, "ALONE_S", 0.5)
    # None is asked for again because it waited for long enough.
    monkeypatch.setattr(backoff, "FIRST_S", 3600.0)
    monkeypatch.setattr(backoff, "LONGEST_S", 3600.0)
    with keyed.context(bus={"url": http_bus.url}) as context:
        while len(context.bus.commits.reasons) < len(sent):
            assert context.bus.fetch() == {}
        monkeypatch.setattr(limits, "FETCH_S", 60.0)
        monkeypatch.setattr(fetching, "ALONE_S", 60.0)
        event.set()

        while not context.bus.fetch():
            time.sleep(0.01)
        assert context.bus.commits.reasons == {}
        assert {*context.bus.fetch()} == {*sent}


@pytest.mark.long
def test_row_82_over_http_a_slow_branch_locks_no_other_out(
    keyed, requester, bus, http_bus, monkeypatch, wait_for
):
    """Git holds a lock of its folder while it fetches with a depth, as it does over HTTP."""
    slow = requester.send(requester.manifest())
    tip = requester.git.text("rev-parse", f"refs/remotes/origin/{slow}")
    event = http_bus.held.setdefault(tip, threading.Event())
    monkeypatch.setattr(limits, "FETCH_S", 1.0)
    with keyed.context(bus={"url": http_bus.url}) as context:
        assert context.bus.fetch() == {}
        wait_for(lambda: list(context.policy.state.rglob("shallow.lock")))
        (lock,) = context.policy.state.rglob("shallow.lock")
        assert lock.parent != context.bus.git.directory
        # It comes beside the polls now. The others have the time that they need.
        monkeypatch.setattr(limits, "FETCH_S", 60.0)
        for _ in range(2):
            good = requester.send(requester.manifest())
            assert good in context.bus.fetch()
        moved = push_upon(bus, good, context.bus.fetch()[good])
        assert context.bus.tip(good) == moved
        event.set()
        until = time.monotonic() + 120
        while slow not in context.bus.fetch():
            assert time.monotonic() < until


@pytest.fixture
def costly(monkeypatch):
    """Commits that do not come in the time of a poll. A fetch that asks for one takes all its time, by a fake clock."""
    passed = 0.0
    real_now, start = time.monotonic, transfer.start_fetch

    class Started:
        """A fetch that has all the time that it needs, or takes all that it is given."""

        is_running = False

        def __init__(self, child):
            self.child = child

        def ended(self, within):
            nonlocal passed
            if self.child:
                return self.child.ended(NETWORK_TIMEOUT)
            passed += within
            return False

        def close(self):
            if self.child:
                self.child.close()

    def started(git, url, *commits, at=""):
        return Started(start(git, url, *commits, at=at) if started.slow.isdisjoint(commits) else None)

    started.slow = set()
    started.passed = lambda: passed
    monkeypatch.setattr(transfer, "start_fetch", started)
    # However slow this machine is.
    monkeypatch.setattr(fetching, "LISTINGS", 0)
    monkeypatch.setattr(fetching, "time", SimpleNamespace(monotonic=lambda: passed + real_now() / 1000))
    return started


@pytest.mark.long
def test_many_slow_commits_delay_one_that_came_with_them_by_their_short_turns_alone(
    host, requester, bus, costly
):
    with host.context() as context:
        fetch, count = context.bus.fetch, 40
        requester.send(requester.manifest())
        fetch()
        git = Git.isolated(bus)
        commits = [objects.commit(git, "main^{tree}", ["main"], f"{i}\n", STRANGER) for i in range(count)]
        for i, commit in enumerate(commits):
            git("update-ref", f"refs/heads/mac-bridge/x{i}", commit)
        costly.slow.update(commits)
        honest = requester.send(requester.manifest())

        while honest not in fetch():
            before = costly.passed()
            assert honest in context.bus.unfetched
        # All get a short turn, a few of them a longer one meanwhile, and before that some parts together.
        longer = count * fetching.ALONE_S / limits.SEARCH_S / (fetching.RETRY_TURN - 1) * limits.FETCH_S
        assert costly.passed() < count * fetching.ALONE_S + longer + 4 * limits.FETCH_S
        # One fetch of what is new, and a search that may end with one more.
        assert costly.passed() - before <= limits.SEARCH_S + 2 * limits.FETCH_S

        # What comes later is served before the search goes on.
        later, before = requester.send(requester.manifest()), costly.passed()
        while later not in fetch():
            pass
        assert costly.passed() - before <= limits.FETCH_S

        # The others keep their turns, and the operator sees why they wait.
        for _ in range(60):
            fetch()
        assert set(context.bus.commits.reasons.values()) == {f"{SlowError().message}; trying again"}
        assert len(context.bus.commits.reasons) == count
        costly.slow.clear()
        until = time.monotonic() + 120
        while len(fetch()) < count + 3:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_slow_commits_under_another_pattern_hold_up_one_turn_each(host, requester, bus, costly):
    patterns = {"patterns": ["claude/mac-bridge-*", "mac-bridge/*"]}
    with host.context(bus=patterns) as context:
        fetch = context.bus.fetch
        requester.send(requester.manifest())
        fetch()
        git = Git.isolated(bus)
        commits = [objects.commit(git, "main^{tree}", ["main"], f"{i}\n", STRANGER) for i in range(40)]
        for i, commit in enumerate(commits):
            git("update-ref", f"refs/heads/claude/mac-bridge-x{i}", commit)
        costly.slow.update(commits)
        honest = requester.send(requester.manifest())

        while honest not in fetch():
            pass
        # Fetches of all, of a part, of a smaller part, and then of two alone.
        assert costly.passed() <= 3 * limits.FETCH_S + 2 * fetching.ALONE_S
