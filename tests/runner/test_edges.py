"""Bounds that only strain meets: memory and time of git, leases, a slow fetch."""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing

import pytest

from bridge.bus import objects, wire
from bridge.bus.wire import State
from bridge.client import Client
from bridge.common import limits
from bridge.errors import GitError
from bridge.system.git import Git
from bridge.system.process import Child
from runner.serve.compose import Composer

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds another process's memory")
STRANGER = objects.Identity("A Stranger", "stranger@example.invalid")


# Leases.


@pytest.mark.parametrize(
    ("lease", "holds"), [(86_400.0, True), (86_400.001, False), (0.0, False), (1e999, False)]
)
def test_a_lease_is_at_most_a_day(lease, holds):
    state = {
        "schema_version": 2, "state": "claimed", "branch": "b", "request": "0" * 40, "salt": "x", "token": 1,
        "sequence": 1, "lease_s": lease, "runner": {"id": "x", "instance": "x", "version": "0"}, "at": "",
    }  # fmt: skip
    assert (wire.parse_state(json.dumps(state).encode()) is not None) is holds


# Git's memory and time.


@pytest.mark.long
@linux
@pytest.mark.parametrize(("megabytes", "fits"), [(8, True), (300, False)])
def test_git_ends_at_its_bound_on_memory_and_the_next_call_works(bus, megabytes, fits):
    git = Git.isolated(bus, memory=256 << 20)
    head = git.text("rev-parse", "main")
    whole = Git.isolated(bus)
    body = f"tree {whole.text('rev-parse', 'main^{tree}')}\nauthor x <x> 1 +0000\ncommitter x <x> 1 +0000\n\n".encode()
    large = whole.text("hash-object", "-t", "commit", "-w", "--stdin", stdin=body + b"x" * (megabytes << 20))

    def read() -> bytes:
        ((_, raw),) = objects.each_content(git, [large])
        return raw

    if fits:
        assert len(read()) == len(body) + (megabytes << 20)
    else:
        with pytest.raises(GitError):
            read()
    assert objects.is_commit(git, head)


def test_git_that_takes_longer_than_its_time_is_ended(bus):
    git = Git.isolated(bus)
    with closing(git.start("cat-file", "--batch-check", timeout=0.3)) as child:
        began = time.monotonic()
        with pytest.raises(GitError, match=r"took longer than 0\.3 s"):
            child.line()
    assert 0.2 < time.monotonic() - began < 60


# A commit that takes longer than a poll waits for.

_WAITS = """
given=$(cat)
case "$given" in *"$0"*) until [ -e "$1" ]; do sleep 0.05; done;; esac
shift
printf '%s\\n' "$given" | "$@"
"""


@pytest.mark.long
def test_a_commit_that_comes_slowly_comes_beside_the_polls(bus, clone, keyed, tmp_path, monkeypatch):
    git, gate = Git.isolated(bus), tmp_path / "gate"
    Client(clone).run("noop")
    keyed.handle()  # into an empty store everything is waited for
    slow = Client(clone).run("noop")
    start = Git.start

    def hold_up(self, *args, timeout=None):
        if args[0] != "fetch":
            return start(self, *args, timeout=timeout)
        argv = ("git", self.locate, str(self.directory), *self.options, *args)
        held = ("/bin/sh", "-c", _WAITS, slow.commit, str(gate), *argv)
        return Child(held, env=self.env, own_session=True, timeout=timeout, error=GitError)

    monkeypatch.setattr(Git, "start", hold_up)
    monkeypatch.setattr(limits, "FETCH_S", 0.5)

    def stands(run) -> State | None:
        state = wire.parse_state(
            objects.read_blob(git, f"refs/heads/{run.branch}", wire.STATE, max_bytes=1 << 14)
        )
        return state.state if state else None

    with keyed.context() as context:
        poller = Composer(context).poller()
        poller.poll()
        # It comes beside the polls now. The others have the time that they need.
        monkeypatch.setattr(limits, "FETCH_S", 60.0)
        honest = Client(clone).run("noop")
        for _ in range(4):
            poller.poll()
        assert stands(honest) is State.SUCCEEDED
        assert stands(slow) is None

        gate.touch()
        until = time.monotonic() + 120
        while stands(slow) is not State.SUCCEEDED and time.monotonic() < until:
            poller.poll()
            time.sleep(0.1)
        assert stands(slow) is State.SUCCEEDED
