"""A client asks for a commit that comes too slowly once in a while, not in each list, and says that it is left out."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from bridge.bus.known import skipped_commits
from bridge.bus.known.skipped_commits import SkippedCommits
from bridge.client import Client
from bridge.common import limits
from bridge.errors import GitError
from bridge.system.git import Git


@pytest.fixture
def requests(clone):
    """Five requests on the bus, given as `{branch: commit id}`, and a slow one among them."""
    runs = [Client(clone).run("noop") for _ in range(5)]
    return {run.branch: run.commit for run in runs}, runs[2]


@pytest.fixture
def asked(requests, monkeypatch):
    """The fetches of listed branches. Those of the slow one take longer than they are given."""
    _, slow = requests
    fetches: list[str] = []
    call = Git.__call__

    def slowly(self, *args, stdin=b"", **more):
        if args[0] == "fetch" and stdin:
            fetches.append(stdin)
            if slow.commit in stdin:
                raise GitError(args, None, message="took longer than 20 s")
        return call(self, *args, stdin=stdin, **more)

    monkeypatch.setattr(Git, "__call__", slowly)
    return fetches


def listed(clone):
    """List as a new process does, and return what was shown and what was left out."""
    client = Client(clone)
    return {status.branch for status in client.list()}, client.remote.skipped


def test_the_next_lists_do_not_ask_for_it_and_say_so(clone, requests, asked, monkeypatch):
    branches, slow = requests
    expected = (branches.keys() - {slow.branch}, [slow.branch])
    assert listed(clone) == expected
    asked.clear()

    assert listed(clone) == expected
    assert asked
    assert not any(slow.commit in specs for specs in asked)

    later = time.time() + skipped_commits.EXPIRY_S + 1
    monkeypatch.setattr(skipped_commits.time, "time", lambda: later)
    assert listed(clone) == expected
    assert any(slow.commit in specs for specs in asked)


def test_one_that_was_fetched_by_its_name_is_listed_again(clone, requests, asked):
    _, slow = requests
    assert slow.branch not in listed(clone)[0]
    assert Client(clone).view(slow.branch).tip == slow.commit
    asked.clear()

    listed(clone)
    assert any(slow.commit in specs for specs in asked)


def test_what_merely_fails_or_had_little_time_is_not_noted(clone, requests, asked, monkeypatch):
    _, slow = requests
    monkeypatch.setattr(limits, "LISTED_S", 3.0)
    listed(clone)
    assert SkippedCommits(Git.of_user(clone)).read() == {}
    monkeypatch.setattr(limits, "LISTED_S", 60.0)
    init = GitError.__init__
    monkeypatch.setattr(
        GitError,
        "__init__",
        lambda self, argv, code, *rest, **more: init(self, argv, code or 128, *rest, **more),
    )
    assert slow.branch not in listed(clone)[0]
    assert SkippedCommits(Git.of_user(clone)).read() == {}


def test_the_file_is_bounded_and_anything_may_stand_in_it(clone):
    noted = SkippedCommits(Git.of_user(clone))
    noted.add_slow({f"b{i}": f"{i:040x}" for i in range(2_500)})
    known = noted.read()
    assert len(known) == skipped_commits.MAX_ENTRIES
    assert f"{2_499:040x}" in known
    (clone / ".git" / skipped_commits.FILE_NAME).write_bytes(b"\xff\0 x 12\n" + b"a" * 40 + b" 99999999999\n")
    assert noted.read() == {}


def test_the_command_says_how_to_read_it(clone, requests):
    _, slow = requests
    SkippedCommits(Git.of_user(clone)).add_slow({slow.branch: slow.commit})
    argv = [sys.executable, "-P", "-m", "bridge", "list"]
    done = subprocess.run(argv, cwd=clone, capture_output=True, text=True, check=True)
    assert slow.branch not in done.stdout
    assert (
        f"1 branch is left out, which came too slowly. Fetch one with: kakeya status {slow.branch}"
        in done.stderr
    )
