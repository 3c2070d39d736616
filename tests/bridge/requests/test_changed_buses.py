"""A bus that changes while a request is followed, and after its answer was read: the client says so."""

from __future__ import annotations

import shutil

import pytest

from bridge.bus.wire import State
from bridge.client import Client
from bridge.errors import RefusedError, VerificationError
from bridge.requests import follow, outbox
from bridge.requests.status import REWRITTEN

pytestmark = pytest.mark.bus


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(follow, "CHANGED_S", 0.3)
    monkeypatch.setattr(follow, "CHANGED_POLL_S", 0.1)


@pytest.fixture
def client(clone, presets, monkeypatch):
    monkeypatch.setenv("KAKEYA_PRESETS", str(presets(noop={"steps": [{"argv": ["/bin/echo", "done"]}]})))
    return Client(clone)


class EnoughError(Exception):
    """Ends a wait that would go on."""


def delete(run, bus, git):
    git(bus, "update-ref", "-d", f"refs/heads/{run.branch}")


def empty(run, bus, git):
    shutil.rmtree(bus)
    git(bus.parent, "init", "--quiet", "--bare", str(bus))


@pytest.mark.parametrize("change", [delete, empty])
def test_row_100_a_request_that_is_gone_while_it_is_followed_was_not_never_sent(client, bus, git, change):
    run = client.run("noop")
    events = run.follow(120)
    assert next(events).status.state is State.REQUESTED

    change(run, bus, git)

    with pytest.raises(RefusedError, match=r"there is no request .* it was there, and was deleted") as failed:
        list(events)
    assert failed.value.code == "gone"


def test_row_100_another_request_on_the_branch_is_not_taken_for_the_one_that_was_sent(
    client, bus, git, keyed
):
    run = client.run("noop")
    commit = git(bus, "commit-tree", "-p", "main", "-m", "another", f"{run.branch}^{{tree}}")
    git(bus, "update-ref", f"refs/heads/{run.branch}", commit)

    with pytest.raises(RefusedError, match="rewritten"):
        run.wait(120)
    assert REWRITTEN in run.status().detail


@pytest.mark.long
def test_row_100_a_server_that_shows_an_older_copy_for_a_moment_is_waited_for(client, monkeypatch):
    """As servers with several copies do: first the branch is missing, then it is there, then it is missing again."""
    monkeypatch.setattr(follow, "CHANGED_S", 600.0)
    run = client.run("noop")
    looked, view = [], client.view

    def flapping(branch):
        looked.append(branch)
        if len(looked) > 8:
            raise EnoughError
        if len(looked) in (1, 2, 4):
            raise outbox.no_such_request(branch, client.remote)
        return view(branch)

    monkeypatch.setattr(client, "view", flapping)
    events = run.follow(120)
    assert next(events).status.state is State.REQUESTED
    with pytest.raises(EnoughError):
        list(events)


def test_row_100_an_answer_that_replaces_a_verified_one_does_not_hold(client, keyed, forger, tmp_path):
    run = client.run("noop")
    keyed.handle(signed=False, preset_folder=str(tmp_path / "presets"))
    assert run.verify().holds
    assert run.verify().holds
    first = forger.tip(run.branch)

    forger.rewrite(run.branch, reason={"code": "done", "message": "every step ended well"})
    # Whatever else reads the bus meanwhile.
    client.list()
    with pytest.raises(VerificationError, match="another answer was verified here before"):
        run.fetch(tmp_path / "out")
    assert [check.name for check in run.verify().checks if check.ok is False] == ["known"]

    forger.git("update-ref", f"refs/heads/{run.branch}", first)
    assert run.fetch(tmp_path / "out").report.holds
