"""The place of a request in the queue, from the manifests on a real bus."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from bridge.bus import history
from bridge.bus.presence import Presence, Quota
from bridge.client import Client
from bridge.manifest import format_time
from bridge.requests import why_waiting
from bridge.requests.runners import with_jobs
from bridge.requests.sighting import RunnerSighting
from bridge.requests.waiting import Code

PATTERNS = ("mac-bridge/*", "claude/mac-bridge-*")


def runner(**fields):
    known = {
        "schema_version": 1, "id": "mac", "instance": "0123456789abcdef", "version": "0.1.0", "state": "serving",
        "at": "2026-01-31T12:00:00Z", "valid_s": 86_400.0,
    }  # fmt: skip
    return RunnerSighting(Presence.model_validate(known | fields))


AT = runner().record.at_s


@pytest.fixture
def reasons(client):
    def look(*runners, now=AT):
        branches = history.read_branches(client.git, client.remote.fetch(*PATTERNS))
        return why_waiting.reasons(client.git, branches, runners, client.presets, PATTERNS, now)

    return look


def test_requesters_take_turns(client, reasons):
    flood = [client.run("noop", requested_by="flood").branch for _ in range(5)]
    mine = client.run("noop", requested_by="me").branch
    found = reasons(runner())
    assert (found[mine].code, found[mine].message) == (
        Code.TURN, "at most 1 job comes before it (requesters take turns) on mac"
    )  # fmt: skip
    behind = {found[branch].message.split()[2] for branch in flood if found[branch].code is Code.TURN}
    assert behind <= {"1", "3", "5"}


def test_a_share_that_is_used_up(client, reasons):
    flood = [client.run("noop", requested_by="flood").branch for _ in range(3)]
    codes = [reasons(runner(quota=Quota(waiting=2).model_dump()))[branch].code for branch in flood]
    assert codes.count(Code.QUOTA) == 1


def test_labels_of_manifest_and_preset_count(client, reasons, presets):
    folder = presets(other={"labels": ["gpu"], "steps": [{"argv": ["/bin/true"]}]})
    client = Client(client.git.directory, presets=folder)
    branch = client.run("other", labels=["big"]).branch
    branches = history.read_branches(client.git, client.remote.fetch(*PATTERNS))
    found = why_waiting.reasons(client.git, branches, [runner(labels=["big"])], client.presets, PATTERNS, AT)
    assert found[branch].missing == ("gpu",)


def test_a_manifest_that_is_none_waits_too(client, reasons, git, clone):
    branch = "mac-bridge/noop-1795000000-abcdef"
    git(clone, "push", "--quiet", "origin", f"HEAD:refs/heads/{branch}")
    assert reasons(runner())[branch].code is Code.MANIFEST
    (clone / ".mac-bridge").mkdir()
    (clone / ".mac-bridge" / "request.json").write_text("{")
    git(clone, "add", "--force", ".mac-bridge")
    git(clone, "commit", "--quiet", "-m", "A request")
    git(clone, "push", "--quiet", "origin", f"HEAD:refs/heads/{branch}")
    assert reasons(runner())[branch].code is Code.SOON
    assert reasons() == {branch: reasons()[branch]}
    assert reasons()[branch].code is Code.UNKNOWN


def test_a_cancelled_one_says_so_and_takes_no_place(client, reasons):
    first = client.run("noop", requested_by="a")
    second = client.run("noop", requested_by="b")
    first.cancel()
    found = reasons(runner())
    assert found[first.branch].code is Code.CANCELLED
    assert found[second.branch].code is Code.SOON


def test_nothing_waits(reasons):
    assert reasons(runner()) == {}


def test_what_a_runner_holds_stands_on_the_branches(client, keyed):
    run = client.run("noop")
    keyed.handle()
    branches = history.read_branches(client.git, client.remote.fetch(*PATTERNS))
    (seen,) = with_jobs([runner(busy_with=run.branch)], branches)
    assert seen.record.busy_with is None, "it has its answer"
    (seen,) = with_jobs([runner(busy_with="mac-bridge/elsewhere")], branches)
    assert seen.record.busy_with == "mac-bridge/elsewhere"


@pytest.mark.long
def test_an_old_state_was_not_started_within_the_hour(client, keyed, reasons):
    client.run("noop", requested_by="me")
    keyed.handle()
    mine = client.run("noop", requested_by="me").branch
    now = time.time()
    one_an_hour = runner(
        quota={"waiting": 9, "per_hour": 1}, at=format_time(datetime.fromtimestamp(now, UTC))
    )
    assert reasons(one_an_hour, now=now)[mine].code is Code.QUOTA
    assert reasons(runner(quota={"waiting": 9, "per_hour": 1}), now=now + 7200)[mine].code is not Code.QUOTA
