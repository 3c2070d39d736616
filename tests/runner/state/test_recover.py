"""A ledger that is damaged or gone, and state folders that were copied: noticed, and nothing runs twice."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from bridge.bus import history, presence, wire
from bridge.bus.wire import State
from bridge.errors import InfrastructureError
from runner.admit.admission import admit
from runner.admit.manifests import read_candidate
from runner.bus.bus import Pushed
from runner.serve.answer import Outcome
from runner.serve.compose import Composer
from runner.serve.dispatch import Action, decide
from runner.serve.lease import Lease
from runner.serve.tracked import TrackedRequest
from runner.state.archive import store
from runner.state.identity import instance_of
from runner.state.ledger import Ledger


def scribble(path: Path) -> None:
    """Write over the pages of a file and leave its head."""
    data = bytearray(path.read_bytes())
    data[1024:] = b"\xa5" * (len(data) - 1024)
    path.write_bytes(data)


DAMAGE = {
    "gone": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "no database": lambda path: path.write_bytes(b"nonsense" * 1000),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:5000]),
    "written over": scribble,
}


@pytest.fixture
def answered(host, requester, ran):
    """A request that was run and answered; returns its manifest and its branch."""
    manifest = requester.manifest("touch")
    branch = requester.send(manifest)
    assert host.answer(branch).state == "succeeded"
    ran.unlink()
    return manifest, branch


def ledger_of(host):
    with host.context() as context:
        return context.policy.state / "ledger.sqlite"


@pytest.mark.rows(1)
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_replay_is_refused_after_the_ledger_was_damaged(host, requester, ran, answered, damage):
    manifest, branch = answered
    path = ledger_of(host)
    damage(path)

    requester.delete(branch)
    requester.send(manifest, branch=branch, files={"x": b"y"})
    result = host.answer(branch)

    assert (result.state, result.reason.code) == ("refused", "replayed")
    assert not ran.exists()
    if path.with_name(path.name).exists() and any("damaged" in line for line in host.told):
        assert list(path.parent.glob("ledger.sqlite.damaged-*"))


def test_the_same_request_pushed_again_is_refused_too(host, requester, ran, answered):
    _, branch = answered
    request = host.result(branch).request
    DAMAGE["no database"](ledger_of(host))
    with host.context():
        pass  # what the store knows is in the ledger again before the branch is seen anew
    requester.delete(branch)
    requester.push(request, branch)
    assert host.answer(branch).reason.code == "replayed"
    assert not ran.exists()


def test_damage_is_told_and_what_was_damaged_is_kept(host, answered):
    path = ledger_of(host)
    DAMAGE["no database"](path)
    with host.context() as context:
        assert context.ledger.unsent_answers() == []
    (aside,) = path.parent.glob("ledger.sqlite.damaged-*")
    assert aside.read_bytes().startswith(b"nonsense")
    assert any("the ledger is damaged" in line for line in host.told)
    assert any("knows 1 requests again" in line for line in host.told)


def test_what_retention_archived_is_known_again(host, requester, ran, answered):
    manifest, branch = answered
    with host.context(retention={"days": 1}) as context:
        tips = context.bus.fetch()
        store(context.bus.git, context.policy.archive, tips)
        context.bus.delete(tips)
        path = context.policy.state / "ledger.sqlite"
    path.unlink()
    requester.git("fetch", "--quiet", "--prune", "origin")
    copy = requester.send(manifest, branch=branch)
    assert host.answer(copy).reason.code == "replayed"
    assert not ran.exists()


def test_an_answer_that_waited_is_still_delivered(host, requester, ran):
    name = requester.send(requester.manifest("touch"))
    with host.context() as context:
        branch = history.read_branch(context.bus.git, name, context.bus.fetch()[name])
        candidate = read_candidate(context.bus.git, branch)
        admitted = admit(context.bus.git, candidate, context.presets, context.policy, context.ledger)
        lease = Lease(context.author, branch)
        context.ledger.begin(lease.request, branch=name)
        assert lease.advance(State.CLAIMED) is Pushed.DONE
        good = wire.Reason(code="ok", message="every step ended with 0")
        outcome = Outcome(State.SUCCEEDED, good, admitted.request, admitted)
        lease.log.add(b"the end of a log\n")
        context.bus.url += "-that-is-gone"
        assert Composer(context).answers().answer(lease, outcome) is None
        path = context.policy.state / "ledger.sqlite"
    DAMAGE["no database"](path)
    with host.context() as context:
        Composer(context).pending_answers().push()
    assert host.result(name).state == "succeeded"
    assert not ran.exists()


def test_answers_that_nothing_waits_for_are_let_go_at_the_start(host, answered):
    _, branch = answered
    with host.context() as context:
        context.bus.protect(context.bus.fetch()[branch])
    with host.context() as context:
        assert context.bus.git.text("for-each-ref", "refs/kept/") == ""
    assert host.result(branch).state == "succeeded"


def test_an_error_that_is_no_damage_moves_nothing(host, answered, monkeypatch):
    path = ledger_of(host)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("PRAGMA locking_mode=EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **{**k, "timeout": 0.1}))
    with pytest.raises(Exception, match="locked"), host.context():
        pass
    holder.close()
    assert path.exists()
    assert list(path.parent.glob("*.damaged-*")) == []


def test_a_ledger_that_cannot_be_opened_is_no_bug(tmp_path):
    (tmp_path / "ledger.sqlite").mkdir()
    with pytest.raises(InfrastructureError, match=r"ledger\.sqlite: unable to open"):
        Ledger(tmp_path / "ledger.sqlite")


def test_a_folder_keeps_its_id_through_restarts_and_renames(tmp_path):
    told: list[str] = []
    folder = tmp_path / "state"
    folder.mkdir()
    first = instance_of(folder, "this host", told.append)
    assert instance_of(folder, "this host", told.append) == first
    moved = folder.rename(tmp_path / "elsewhere")
    assert instance_of(moved, "this host", told.append) == first
    assert told == []


def test_a_copied_folder_gets_an_id_of_its_own_and_says_so(tmp_path):
    told: list[str] = []
    folder = tmp_path / "state"
    folder.mkdir()
    first = instance_of(folder, "this host", told.append)
    shutil.copytree(folder, tmp_path / "copy")
    second = instance_of(tmp_path / "copy", "this host", told.append)
    third = instance_of(folder, "another host", told.append)
    assert len({first, second, third}) == 3
    assert len(told) == 2
    assert f"this runner is {second} from now on, and no longer {first}" in told[0]
    assert instance_of(tmp_path / "copy", "this host", told.append) == second


def test_an_id_of_an_older_version_is_kept(tmp_path):
    (tmp_path / "instance").write_text("0123456789abcdef")
    assert instance_of(tmp_path, "this host", print) == "0123456789abcdef"
    assert len((tmp_path / "instance").read_text().split()) == 2


@pytest.mark.parametrize("content", [bytes(80), b"", b"\xff" * 40])
def test_a_damaged_id_is_replaced(tmp_path, content):
    (tmp_path / "instance").write_bytes(content)
    instance = instance_of(tmp_path, "this host", print)
    assert presence.is_ref(presence.REFS + instance)
    assert instance_of(tmp_path, "this host", print) == instance


def test_a_claim_by_a_copy_of_the_whole_disk_is_respected(host, requester, ran):
    """Two runners that nothing but their ledgers tells apart: neither resumes what the other one holds."""
    name = requester.send(requester.manifest("touch"))
    with host.context("one") as one, host.context("two") as two:
        object.__setattr__(two, "identity", one.identity)
        branch = history.read_branch(one.bus.git, name, one.bus.fetch()[name])
        lease = Lease(one.author, branch)
        assert lease.advance(State.CLAIMED) is Pushed.DONE

        poller = Composer(two).poller()
        assert not poller.poll()
        assert not poller.poll()

        twin = history.read_branch(two.bus.git, name, two.bus.fetch()[name])
        assert (
            decide(TrackedRequest(twin), two.policy, two.ledger, two.clock, two.identity.instance)
            is Action.WAIT
        )
        assert (
            decide(TrackedRequest(twin), one.policy, one.ledger, one.clock, one.identity.instance)
            is Action.TAKE
        )
    assert not ran.exists()
    (warning,) = [line for line in host.told if "under this one's id" in line]
    assert "Delete the file `instance` on one of them" in warning


def test_a_claim_from_before_a_crash_is_resumed_at_once(host, requester, ran):
    name = requester.send(requester.manifest("touch"))
    with host.context() as context:
        branch = history.read_branch(context.bus.git, name, context.bus.fetch()[name])
        assert Lease(context.author, branch).advance(State.CLAIMED) is Pushed.DONE
    assert host.answer(name).state == "succeeded"
    assert ran.exists()
