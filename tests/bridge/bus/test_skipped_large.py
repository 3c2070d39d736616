"""A client fetches a commit that is too large once, keeps no reference to it, and lists the others."""

from __future__ import annotations

import pytest

from bridge.bus import objects
from bridge.bus.known import skipped_commits
from bridge.bus.known.skipped_commits import FILE_NAME
from bridge.bus.objects import Identity
from bridge.bus.remote import PRIVATE, Remote
from bridge.common import limits
from bridge.errors import ProcessError
from bridge.system.git import Git

GOOD = "mac-bridge/noop-1700000001-abc123"
HEAVY = "mac-bridge/noop-1700000002-abc123"


@pytest.fixture
def remote(clone):
    return Remote.of(Git.of_user(clone), "origin")


@pytest.fixture
def sized(bus, git):
    """Put a branch on the bus whose commit has so many bytes."""

    def put(branch: str, size: int) -> str:
        repo = Git.isolated(bus)
        tree = objects.write_blob(repo, b"x") and objects.overlay(repo, None, {"x": b"x"})
        empty = objects.commit(repo, tree, [], "\n", Identity("x", "x@y"))
        spare = size - objects.object_sizes(repo, [empty])[empty]
        commit = objects.commit(repo, tree, [], "m" * spare + "\n", Identity("x", "x@y"))
        assert objects.object_sizes(repo, [commit])[commit] == size
        git(bus, "update-ref", f"refs/heads/{branch}", commit)
        return commit

    return put


@pytest.mark.parametrize("more", [0, 1])
def test_a_commit_beyond_the_limit_is_left_out_and_not_fetched_again(remote, sized, more, list_fetches):
    good, heavy = sized(GOOD, 1000), sized(HEAVY, limits.COMMIT_BYTES + more)
    expected = {GOOD: good} if more else {GOOD: good, HEAVY: heavy}

    assert remote.fetch_listed(remote.list_branches("mac-bridge/*")) == expected

    refs = remote.git.text("for-each-ref", "--format=%(refname)", PRIVATE).split("\n")
    assert refs == [PRIVATE + branch for branch in expected]
    list_fetches.clear()
    assert remote.fetch_listed(remote.list_branches("mac-bridge/*")) == expected
    assert list_fetches == [expected]


def test_one_that_is_looked_at_by_name_is_told_and_leaves_no_reference(remote, sized):
    heavy = sized(HEAVY, limits.COMMIT_BYTES + 1)
    assert remote.fetch(HEAVY) == {HEAVY: heavy}
    assert remote.git.text("for-each-ref", PRIVATE) == ""
    assert remote.fetch_listed(remote.list_branches("mac-bridge/*")) == {}


def test_a_repository_that_cannot_be_written_to_lists_the_others(remote, sized, clone):
    good, _ = sized(GOOD, 1000), sized(HEAVY, limits.COMMIT_BYTES + 1)
    (clone / ".git" / FILE_NAME).mkdir()
    for _ in range(2):
        assert remote.fetch_listed(remote.list_branches("mac-bridge/*")) == {GOOD: good}


@pytest.mark.parametrize("more", [0, 1])
def test_the_newest_branches_are_fetched_up_to_the_limit(remote, sized, monkeypatch, more):
    monkeypatch.setattr(limits, "FETCHED", 2)
    names = [f"mac-bridge/noop-170000000{i}-abc123" for i in range(2 + more)]
    for name in names:
        sized(name, 1000)
    assert list(remote.fetch("mac-bridge/*")) == names[::-1][:2]


@pytest.mark.parametrize("more", [0, 1])
def test_a_commit_beyond_the_limit_below_the_tip_counts_too(remote, sized, bus, git, more):
    good, heavy = sized(GOOD, 1000), sized("other", limits.COMMIT_BYTES + more)
    repo = Git.isolated(bus)
    tree, tip = repo.text("rev-parse", f"{heavy}^{{tree}}"), heavy
    for _ in range(3):
        tip = objects.commit(repo, tree, [tip], "small\n", Identity("x", "x@y"))
    git(bus, "update-ref", f"refs/heads/{HEAVY}", tip)
    expected = {GOOD: good} if more else {GOOD: good, HEAVY: tip}

    assert remote.fetch_listed(remote.list_branches("mac-bridge/*")) == expected

    refs = remote.git.text("for-each-ref", "--format=%(refname)", PRIVATE).split("\n")
    assert refs == [PRIVATE + branch for branch in expected]


def test_row_105_a_history_that_takes_long_to_read_is_left_out_for_a_while(remote, sized, monkeypatch):
    """A few megabytes of commits with thousands of parents each take git minutes."""
    names = [f"mac-bridge/noop-17000000{i:02}-abc123" for i in range(20)]
    good = {name: sized(name, 1000 + i) for i, name in enumerate(names)}
    slow = sized("mac-bridge/noop-1700000099-abc123", 2000)
    asked = []

    def read(git, commits, *, but, timeout):
        asked.append(timeout)
        if slow in commits:
            raise ProcessError(("git",), None, message="git took too long")
        return set()

    monkeypatch.setattr(skipped_commits, "oversized_tips", read)
    assert remote.fetch_listed(remote.list_branches("mac-bridge/*")) == good

    # All, eight parts, and the two or three of the part with the slow one.
    assert len(asked) in (11, 12)
    assert max(asked) <= skipped_commits.TOGETHER_S
    refs = remote.git.text("for-each-ref", "--format=%(refname)", PRIVATE).split("\n")
    assert refs == [PRIVATE + branch for branch in good]
    del asked[:]
    later = Remote.of(remote.git, "origin")
    assert later.fetch_listed(later.list_branches("mac-bridge/*")) == good
    assert later.skipped == ["mac-bridge/noop-1700000099-abc123"]
    assert len(asked) == 1


def test_row_105_a_real_history_that_takes_longer_than_there_is_time_is_left_out(remote, sized, monkeypatch):
    sized(GOOD, 1000)
    monkeypatch.setattr(skipped_commits, "TOGETHER_S", 0.0)
    monkeypatch.setattr(skipped_commits, "ALONE_S", 0.0)
    assert remote.fetch_listed(remote.list_branches("mac-bridge/*")) == {}
    assert remote.skipped == [GOOD]
    assert remote.git.text("for-each-ref", PRIVATE) == ""
