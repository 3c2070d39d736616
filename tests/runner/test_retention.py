"""Retention: what is answered goes by age and number, into an archive that a client can verify; nothing else goes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from bridge import objects, wire
from bridge.client import Client
from bridge.git import Git
from bridge.manifest import format_time
from bridge.names import new_nonce
from bridge.wire import State, StateFile
from runner import retention
from runner.chores import Chores
from runner.policy import Retention, load_policy
from runner.retention import sweep
from runner.serve import Rounds


def branches(bus):
    listed = Git.isolated(bus).text("for-each-ref", "--format=%(refname)", "refs/heads/mac-bridge/")
    return sorted(ref.removeprefix("refs/heads/") for ref in listed.splitlines())


@pytest.fixture
def old(requester):
    """Put a request on the bus that stands as given, since so many days ago."""

    def make(state: State, days: float) -> str:
        manifest = requester.manifest("touch")
        branch = requester.send(manifest)
        tip = requester.git.text("rev-parse", f"refs/remotes/origin/{branch}")
        if state is State.REQUESTED:
            return branch
        at = format_time(datetime.now(UTC) - timedelta(days=days))
        said = StateFile(
            schema_version=2, state=state, branch=branch, request=tip, salt=new_nonce(), token=1, sequence=2,
            lease_s=120.0, runner=wire.Runner(id="x", instance="x", version="0"), at=at,
        )  # fmt: skip
        commit = requester.commit({wire.STATE: said.to_bytes()}, tip, base=tip)
        requester.push(commit, branch)
        return branch

    return make


@pytest.mark.parametrize("state", [s for s in State if not s.is_final])
def test_what_has_no_answer_stays_however_old_it_is(host, old, state):
    branch = old(state, days=3000)
    with host.session() as session:
        swept = sweep(session, Retention(days=1, keep=1))
    assert swept.deleted == []
    assert (swept.answered, swept.unanswered) == (0, 1)
    assert branches(host.bus) == [branch]


@pytest.mark.parametrize("state", [s for s in State if s.is_final])
def test_every_answer_goes_when_it_is_old(host, old, state):
    branch = old(state, days=31)
    with host.session() as session:
        assert sweep(session, Retention(days=30)).deleted == [branch]
    assert branches(host.bus) == []


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        ({"days": 30}, [0, 1, 2, 3]),
        ({"days": 5}, [0, 1, 2]),
        ({"keep": 2}, [0, 1]),
        ({"keep": 1}, [0]),
        ({"keep": 100}, [0, 1, 2, 3]),
        ({"keep": 3, "days": 1.5}, [0, 1]),
        ({"keep": 1, "days": 0.01}, [0]),
    ],
)
def test_age_and_number(host, old, rule, left):
    ages = [0.02, 1, 2, 10]
    made = [old(State.SUCCEEDED, days=age) for age in ages]
    with host.session() as session:
        sweep(session, Retention(**rule))
    assert branches(host.bus) == sorted(made[i] for i in left)


def test_the_archive_verifies_as_the_bus_did(host, client, clone, runners, tmp_path):
    runners.start(presets=["noop"])
    run = client.run("noop")
    run.wait(60)
    runners.started[0].stop()
    tip = client.view(run.branch).tip
    archive = tmp_path / "kept" / "archive.git"
    with host.session() as session:
        # An hour must have passed since the answer.
        chosen = {run.branch: session.bus.fetch()[run.branch]}
        retention.store(session.bus.git, archive, chosen)
        assert session.bus.delete(chosen) == [run.branch]
    assert branches(host.bus) == []

    reader = Client(clone, str(archive))

    assert reader.view(run.branch).tip == tip
    assert reader.verify(run.branch).holds
    assert (reader.fetch(run.branch, tmp_path / "out").folder / ".mac-bridge" / "result.json").exists()


def test_an_answer_that_just_came_stays_until_it_could_be_read(host, old):
    branch = old(State.SUCCEEDED, days=0)
    old(State.SUCCEEDED, days=0)
    with host.session() as session:
        assert sweep(session, Retention(keep=1, days=0.0001)).deleted == []
    assert branch in branches(host.bus)


def test_a_branch_that_moved_meanwhile_stays(host, old, requester, monkeypatch):
    branch = old(State.SUCCEEDED, days=10)
    tip = requester.git.text("rev-parse", f"refs/remotes/origin/{branch}")
    archived = retention.store

    def store_and_push(*args):
        archived(*args)
        requester.push(requester.commit({"new.txt": b"new"}, tip, base=tip), branch)

    monkeypatch.setattr(retention, "store", store_and_push)
    with host.session() as session:
        swept = sweep(session, Retention(days=1))
    assert (swept.deleted, swept.stayed) == ([], [branch])
    assert branches(host.bus) == [branch]


def test_nothing_is_deleted_where_the_archive_fails(host, old, tmp_path):
    branch = old(State.SUCCEEDED, days=10)
    (tmp_path / "a-file").touch()
    with host.session(retention={"days": 1, "archive": str(tmp_path / "a-file" / "archive.git")}) as session:
        Chores(session).maybe()
    assert any("trying again in an hour" in line for line in host.told)
    assert branches(host.bus) == [branch]


def test_a_bus_that_lets_no_branch_go_is_reported(host, old, git):
    branch = old(State.SUCCEEDED, days=10)
    git(host.bus, "config", "receive.denyDeletes", "true")
    with host.session() as session:
        swept = sweep(session, Retention(days=1))
    assert (swept.deleted, swept.stayed) == ([], [branch])


def test_the_archive_replaces_nothing(host, old, requester):
    branch = old(State.SUCCEEDED, days=10)
    with host.session() as session:
        first = sweep(session, Retention(days=1))
        kept = Git.isolated(session.policy.state / "archive.git")
        tip = objects.resolve(kept, f"refs/heads/{branch}")
        assert first.deleted == [branch]
        again = requester.commit({"other.txt": b"other"}, tip, base=tip)
        requester.push(again, branch)
        session.bus.fetch()

        retention.store(session.bus.git, session.policy.state / "archive.git", {branch: again})

        assert objects.resolve(kept, f"refs/heads/{branch}") == tip
        assert objects.resolve(kept, f"refs/again/{again}") == again


def test_a_deleted_request_that_is_pushed_again_is_refused_and_not_run(host, requester, ran):
    branch = requester.send(requester.manifest("touch"))
    tip = requester.git.text("rev-parse", f"refs/remotes/origin/{branch}")
    assert host.answer(branch).state == "succeeded"
    ran.unlink()
    requester.delete(branch)
    requester.push(tip, branch)
    result = host.answer(branch)
    assert (result.state, result.reason.code) == ("refused", "replayed")
    assert not ran.exists()


def test_the_store_forgets_what_was_deleted_and_keeps_what_waits(host, old):
    gone = old(State.SUCCEEDED, days=10)
    stays = old(State.REQUESTED, days=0)
    with host.session() as session:
        tips = session.bus.fetch()
        git = session.bus.git
        session.ledger.begin(tips[stays], branch=stays, nonce="1790000000-abcdef", preset="touch")
        session.ledger.answered(tips[stays], "succeeded", tips[stays], tips[stays])
        session.bus.keep(tips[stays])
        session.bus.keep(tips[gone])
        sweep(session, Retention(days=1))
        assert git.text("for-each-ref", "--format=%(refname)", "refs/kept/") == f"refs/kept/{tips[stays]}"
        assert objects.resolve(git, f"refs/bus/{gone}") is None


def test_serve_sweeps_now_and_then(host, old):
    branch = old(State.SUCCEEDED, days=10)
    with host.session(retention={"days": 1}) as session:
        chores = Chores(session)
        chores.maybe()
        assert branches(host.bus) == []
        old(State.SUCCEEDED, days=10)
        chores.maybe()
        assert len(branches(host.bus)) == 1
    assert any("retention: 1 answers are in" in line for line in host.told)
    assert branch not in branches(host.bus)


def test_a_serving_runner_sweeps_in_portions(host, old, monkeypatch):
    monkeypatch.setattr("runner.chores._PORTION", 2)
    for days in (30, 20, 10):
        old(State.SUCCEEDED, days=days)
    now = time.monotonic()
    with host.session(retention={"days": 1}) as session:
        chores = Chores(session)
        chores.maybe()
        assert len(branches(host.bus)) == 1
        chores.maybe()
        assert len(branches(host.bus)) == 1
        monkeypatch.setattr("runner.chores.time.monotonic", lambda: now + 120)
        chores.maybe()

    assert branches(host.bus) == []


def test_the_command_says_what_would_go_and_then_does_it(host, old, runners, tmp_path):
    branch = old(State.SUCCEEDED, days=10)
    policy = host.policy("one", retention={"days": 1})

    def gc(*args: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-P", "-m", "runner", "--policy", str(policy), "gc", *args]
        return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)

    asked = json.loads(gc("--dry-run", "--json").stdout)
    assert (asked["dry_run"], asked["deleted"]) == (True, [branch])
    assert branches(host.bus) == [branch]
    assert gc().stdout == f"{branch}\n"
    assert branches(host.bus) == []
    policy = host.policy("one")
    assert gc().returncode == 2


def test_a_flood_of_answered_requests_stays_usable(host, old, requester, ran):
    """Row 22 at a small scale: benchmarks/runner.py measures 20,000."""
    made = [old(State.SUCCEEDED, days=10) for _ in range(30)]
    request = requester.send(requester.manifest("touch"))
    with host.session(retention={"keep": 5}) as session:
        rounds, chores = Rounds(session), Chores(session)
        assert rounds.next()
        chores.maybe()
        assert not rounds.next()
    assert host.result(request).state == "succeeded"
    assert len(branches(host.bus)) == 5
    assert len(made) == 30


@pytest.mark.parametrize(
    "section", [{}, {"days": 0}, {"keep": 0}, {"days": 1, "archive": "here"}, {"weeks": 1}]
)
def test_a_section_that_says_nothing_or_too_much_is_refused(runners, section):
    with pytest.raises(Exception, match=r"one\.yaml"):
        load_policy(runners.policy("one", retention=section))
