"""The store keeps what is on the bus, and not what somebody pushed and took away again."""

from __future__ import annotations

import os

import pytest

from bridge.bus import objects
from bridge.bus.branch_names import new_nonce
from bridge.bus.wire import State
from bridge.system.git import Git
from runner.serve.compose import Composer
from runner.upkeep import tidy

pytestmark = pytest.mark.bus

# Git writes a pack of so many objects to a file, and a smaller one into single files.
FILES = 150


@pytest.mark.parametrize("room", [0, 1 << 30], ids=["grown", "hardly grown"])
def test_what_was_deleted_from_the_bus_is_removed_once_the_store_has_grown(
    keyed, bus, client, monkeypatch, room
):
    monkeypatch.setattr(tidy, "ROOM", dict.fromkeys(tidy.ROOM, room))
    git = Git.isolated(bus)
    files = {f"files/{i}": os.urandom(99) for i in range(FILES)}
    stranger = objects.Identity("A Stranger", "stranger@example.invalid")
    junk = objects.commit(git, objects.overlay(git, None, files), ["main"], "x\n", stranger)
    ref = f"refs/heads/mac-bridge/noop-{new_nonce()}"
    git("update-ref", ref, junk)

    with keyed.context() as context:
        poller = Composer(context).poller()
        context.bus.fetch()
        git("update-ref", "-d", ref)
        run = client.run("noop")
        poller.poll()
        Composer(context).chores().run_if_due()

        assert objects.is_commit(context.bus.git, junk) is (room > 0)
        later = client.run("noop")
        poller.poll()
    assert [run.status().state, later.status().state] == [State.SUCCEEDED] * 2
