"""Histories that take long to read: they keep nobody waiting, and are served once they are read."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from bridge.bus import objects, wire
from bridge.client import Client
from bridge.common import limits
from bridge.errors import GitError
from bridge.system.git import NETWORK_TIMEOUT, Git
from runner.bus import history_size
from runner.bus.commits import Commits
from runner.bus.history_size import HistorySizeChecker, check_size
from runner.serve.compose import Composer
from tests.trees import list_tree

SOMEBODY = objects.Identity("S", "s@example.invalid")


@pytest.fixture
def long(monkeypatch):
    """The ids of commits whose histories are long: reading one takes the time that one gets beside the polls.

    All others have the time that they need, also on a busy machine.
    """
    commits: set[str] = set()
    asked: list[tuple[set[str], float]] = []
    real = history_size.oversized_tips

    def slow(git, tips, *, but, timeout=None):
        asked.append((set(tips), timeout))
        if commits.intersection(tips) and timeout < 60:
            time.sleep(slow.pause)
            raise GitError(("git",), None, message=f"git took longer than {timeout} s")
        return real(git, tips, but=but, timeout=NETWORK_TIMEOUT)

    monkeypatch.setattr(history_size, "oversized_tips", slow)
    slow.asked = asked
    slow.commits = commits
    slow.pause = 0.0
    return slow


def new_commits(git, count, message="x\n"):
    return [objects.commit(git, "main^{tree}", ["main"], f"{message}{i}\n", SOMEBODY) for i in range(count)]


def is_answered(git, branch):
    return bool(list_tree(git, f"refs/heads/{branch}", wire.RESULT))


def until_decided(checker, commits):
    until = time.monotonic() + 120
    while True:
        said = checker.check(commits, 60.0)
        if not checker.undecided:
            return said
        assert time.monotonic() < until, "it stays undecided"
        time.sleep(0.02)


def test_a_long_history_is_read_beside_the_others(bus, long):
    git = Git.isolated(bus)
    short, slow = new_commits(git, 3), new_commits(git, 1, "slow\n")
    long.commits.update(slow)
    checker = HistorySizeChecker(git, Commits())

    assert checker.check([*short, *slow], 60.0) == dict.fromkeys(short)
    assert checker.undecided == {*slow}
    assert until_decided(checker, slow) == {slow[0]: None}


def test_a_long_history_with_a_commit_beyond_the_limit_is_refused_in_the_end(bus, long):
    git = Git.isolated(bus)
    heavy = objects.commit(git, "main^{tree}", ["main"], "x" * (limits.COMMIT_BYTES + 1), SOMEBODY)
    above = objects.commit(git, "main^{tree}", [heavy], "x\n", SOMEBODY)
    long.commits.add(above)

    assert "ancestor beyond the limit" in until_decided(HistorySizeChecker(git, Commits()), [above])[above]


@pytest.mark.long
def test_what_comes_later_does_not_wait_behind_a_flood_of_long_histories(bus, long):
    git = Git.isolated(bus)
    flood = new_commits(git, 40)
    long.commits.update(flood)
    long.pause = 0.5
    checker = HistorySizeChecker(git, Commits())
    checker.check(flood, 2.0)
    assert checker.undecided == {*flood}
    begun = [tips for tips, _ in long.asked if len(tips) == 1]
    assert len(begun) < len(flood), "some were not even begun"
    (later,) = new_commits(git, 1, "later\n")

    assert checker.check([*flood, later], 2.0)[later] is None


def test_reading_that_never_ends_is_told_and_ended_with_the_runner(bus, long, monkeypatch):
    git = Git.isolated(bus)
    (endless,) = new_commits(git, 1)
    long.commits.add(endless)
    monkeypatch.setattr(history_size, "NETWORK_TIMEOUT", 1.0)
    checker = HistorySizeChecker(git, Commits())

    assert "its history cannot be read: git took longer" in until_decided(checker, [endless])[endless]
    checker.close()


def test_of_a_history_that_is_not_whole_nothing_is_said(bus, long):
    git = Git.isolated(bus)
    (missing,) = new_commits(git, 1)
    above = objects.commit(git, "main^{tree}", [missing], "x\n", SOMEBODY)
    (git.directory / "objects" / missing[:2] / missing[2:]).unlink()
    (whole,) = new_commits(git, 1, "whole\n")

    assert until_decided(HistorySizeChecker(git, Commits()), [above, whole]) == {whole: None}
    long.commits.add(above)
    assert until_decided(HistorySizeChecker(git, Commits()), [above, whole]) == {whole: None}


def test_of_one_branch_alone_a_history_that_takes_too_long_is_said(bus, long):
    git = Git.isolated(bus)
    (slow,) = new_commits(git, 1)
    long.commits.add(slow)

    assert check_size(git, slow, 5.0) == "its history takes longer than 5 s to read"


@pytest.mark.bus
def test_row_82_a_request_upon_a_long_history_is_answered_and_others_before_it(bus, clone, keyed, long):
    git = Git.isolated(bus)
    with keyed.context() as context:
        Client(clone).run("noop")
        poller = Composer(context).poller()
        poller.poll()
        slow = Client(clone).run("noop")
        long.commits.add(slow.commit)
        other = Client(clone).run("noop")

        assert poller.poll()
        assert is_answered(git, other.branch)
        assert git.text("rev-parse", slow.branch) == slow.commit
        assert any(
            f"{slow.branch} is left out: its history is long and is still being read" in t for t in keyed.told
        )
        until = time.monotonic() + 120
        while not is_answered(git, slow.branch):
            assert time.monotonic() < until
            poller.poll()
            time.sleep(0.1)


def test_a_flood_of_long_histories_in_each_poll_does_not_starve_what_waits(bus, long, monkeypatch):
    git = Git.isolated(bus)
    (honest,) = new_commits(git, 1, "honest\n")
    # It is short, but comes in the same listing as a flood, of which each poll has time for a few.
    clock = 0.0
    real = history_size.oversized_tips

    def read(git, tips, *, but, timeout):
        nonlocal clock
        is_alone = len(tips) == 1 and timeout < 60
        clock += timeout if is_alone and long.commits.issuperset(tips) else 0.0
        return real(git, tips, but=but, timeout=timeout)

    monkeypatch.setattr(history_size, "oversized_tips", read)
    monkeypatch.setattr(history_size, "time", SimpleNamespace(monotonic=lambda: clock))
    # By chance it comes last.
    last = SimpleNamespace(
        choice=lambda some: some[0], sample=lambda some, _: sorted(some, key=lambda oid: oid == honest)
    )
    monkeypatch.setattr(history_size, "random", last)
    checker = HistorySizeChecker(git, Commits())
    floods = [new_commits(git, 12, f"flood {i}\n") for i in range(12)]
    asked = [honest]
    for flood in floods:
        long.commits.update(flood)
        asked += flood
        if honest in checker.check(asked, 2.0):
            break
    else:
        raise AssertionError("it was never read")
