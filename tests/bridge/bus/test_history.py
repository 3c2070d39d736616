"""Many branches read at once: of those that have ended only the state, if no more is asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.bus import history, wire
from bridge.bus.objects import Identity, commit, overlay
from bridge.bus.wire import State
from bridge.system import batch
from bridge.system.git import Git

WHO = Identity("A Tester", "tester@example.invalid")
AT = "2027-01-15T08:00:00Z"


@pytest.fixture
def store(clone) -> Git:
    return Git.of_user(clone)


@pytest.fixture
def tips(store):
    """Branches of each kind, by name: the last commit of each."""
    base = store.text("rev-parse", "HEAD")

    def upon(parent, files):
        return commit(store, overlay(store, f"{parent}^{{tree}}", files), [parent], "A commit\n", WHO)

    def stated(branch, now, parent=base, told=None):
        file = {
            "schema_version": 2, "state": now, "branch": told or branch, "request": base, "salt": "01", "token": 1,
            "sequence": 1, "lease_s": 60.0, "runner": {"id": "one", "instance": "one", "version": "0"}, "at": AT,
        }  # fmt: skip
        return upon(parent, {wire.STATE: wire.StateFile.model_validate(file).to_bytes()})

    def cancelled(branch, parent):
        file = {"schema_version": 2, "branch": branch, "request": base, "by": "me", "at": AT}
        return upon(parent, {wire.CANCEL: wire.CancelFile.model_validate(file).to_bytes()})

    found = {
        "waits": base,
        "withdrawn": cancelled("withdrawn", base),
        "claimed": stated("claimed", State.CLAIMED),
        "claimed, then pushed to": upon(stated("claimed, then pushed to", State.CLAIMED), {"a": b"1"}),
        "running, cancelled": cancelled("running, cancelled", stated("running, cancelled", State.RUNNING)),
        "of another": stated("of another", State.FAILED, told="other"),
        "no state": upon(base, {wire.STATE: b"{}"}),
        "succeeded": stated("succeeded", State.SUCCEEDED),
        "lost": stated("lost", State.LOST, stated("lost", State.CLAIMED)),
        "refused, then pushed to": upon(stated("refused, then pushed to", State.REFUSED), {"a": b"1"}),
        "failed, cancelled": cancelled("failed, cancelled", stated("failed, cancelled", State.FAILED)),
    }
    assert len(set(found.values())) == len(found)
    return found


def test_only_of_those_that_have_ended_less_is_read(store, tips):
    whole = history.read_branches(store, tips)
    brief = history.read_branches(store, tips, ended_whole=False)

    assert {name for name, branch in whole.items() if branch.current_state.is_final} == {*list(tips)[-4:]}
    assert whole["refused, then pushed to"].has_foreign_commits
    assert whole["failed, cancelled"].cancel
    assert brief == {
        name: replace(branch, has_foreign_commits=False, cancel=None)
        if branch.current_state.is_final
        else branch
        for name, branch in whole.items()
    }


def test_git_is_asked_for_less_of_those_that_have_ended_and_for_no_more_of_the_others(
    store, tips, monkeypatch
):
    asked = []
    ask = batch.CatFileProcess.ask

    def count(process, names):
        if "--batch-check" in process.child.argv:
            asked.extend(names)
        ask(process, names)

    monkeypatch.setattr(batch.CatFileProcess, "ask", count)

    def questions(*names, ended_whole):
        asked.clear()
        history.read_branches(store, {name: tips[name] for name in names}, ended_whole=ended_whole)
        return len(asked)

    assert questions("succeeded", ended_whole=False) < questions("succeeded", ended_whole=True)
    for name in tips:
        assert questions(name, ended_whole=False) <= questions(name, ended_whole=True)
