"""Branches of the bus that are other names of branches: only whoever runs the bus can make such references."""

from __future__ import annotations

import pytest

from bridge.bus.wire import State
from runner.serve.compose import Composer

pytestmark = pytest.mark.bus

ALIAS = "mac-bridge/noop-1790000001-abc123"


@pytest.fixture
def aliased(client, bus, git):
    """A request, and symbolic references to it, to main, to nothing and to itself."""
    run = client.run("noop")
    for name, target in (
        (ALIAS, run.branch),
        ("mac-bridge/noop-1790000002-abc123", "main"),
        ("mac-bridge/noop-1790000003-abc123", "mac-bridge/gone"),
        ("mac-bridge/noop-1790000004-abc123", "mac-bridge/noop-1790000004-abc123"),
    ):
        git(bus, "symbolic-ref", f"refs/heads/{name}", f"refs/heads/{target}")
    return run


def test_row_93_what_symbolic_references_stand_for_is_served_and_they_are_left_out(aliased, keyed, bus, git):
    main = git(bus, "rev-parse", "main")

    keyed.handle()

    assert aliased.status().state is State.SUCCEEDED
    assert git(bus, "rev-parse", "main") == main
    (told,) = [line for line in keyed.told if "symbolic references" in line]
    assert "2 branches are left out" in told
    assert "mac-bridge/noop-179000000" in told


def test_row_93_where_the_server_does_not_say_so_answers_come_less_and_less_often(
    aliased, keyed, bus, git, monkeypatch
):
    """By the older protocol a server names no symbolic reference but HEAD."""
    monkeypatch.setattr("runner.bus.backoff.FIRST_S", 3600.0)
    monkeypatch.setattr("runner.bus.backoff.LONGEST_S", 3600.0)
    before = int(git(bus, "rev-list", "--count", aliased.branch))
    with keyed.context() as context:
        context.bus.git("config", "protocol.version", "0")
        poller = Composer(context).poller()
        for _ in range(12):
            poller.poll()

    assert not any("symbolic" in line for line in keyed.told)
    assert int(git(bus, "rev-list", "--count", aliased.branch)) - before <= 8
