"""A bus that changes while a request is followed, and after its answer was read: the client says so."""

from __future__ import annotations

import shutil

import pytest

from bridge.bus.wire import State
from bridge.client import Client
from bridge.errors import RefusedError, VerificationError
from bridge.requests.status import REWRITTEN

pytestmark = pytest.mark.bus


@pytest.fixture
def client(clone, presets, monkeypatch):
    monkeypatch.setenv("KAKEYA_PRESETS", str(presets(noop={"steps": [{"argv": ["/bin/echo", "done"]}]})))
    return Client(clone)


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
