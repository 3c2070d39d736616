"""A runner notes its answers beside their commits on the bus, if its policy says so, and loses nobody else's notes."""

from __future__ import annotations

import pytest

from bridge.bus.notes import NOTE_BYTES, REF
from runner.bus.bus import Bus
from runner.serve.compose import Composer
from runner.serve.loop import once
from runner.upkeep.answer_notes import AnswerNotes

pytestmark = pytest.mark.bus


@pytest.fixture
def answer(client, keyed):
    """Let a runner answer so many requests and push its notes; return the branches."""

    def run(count: int = 1, *, meanwhile=lambda: None, **bus: object) -> list[str]:
        branches = [client.run("noop").branch for _ in range(count)]
        keyed.key()
        with keyed.context(bus={"notes": True, **bus}) as context:
            poller, notes = (
                Composer(context).poller(),
                AnswerNotes(context.to_note, context.author, context.presets, context.operator.tell),
            )
            while poller.poll():
                pass
            meanwhile()
            notes.push_if_due()
            notes.push_if_due()
            assert all(client.result(branch) for branch in branches)
            run.waiting = [*context.to_note]
        return branches

    return run


def noted(git, bus):
    return git(bus, "log", "-1", "--notes=kakeya", "--format=%N", "main").split("\n\n")


def note_by_another(git, clone, text):
    git(clone, "fetch", "--quiet", "origin", f"+{REF}:{REF}")
    git(clone, "notes", "--ref=kakeya", "append", "-m", text, "HEAD")
    git(clone, "push", "--quiet", "origin", f"{REF}:{REF}")


def test_by_default_nothing_is_noted(client, keyed, git, bus):
    client.run("noop")
    keyed.handle()

    assert git(bus, "for-each-ref", "refs/notes/") == ""


def test_answers_are_noted_together_beside_their_commit(answer, git, bus):
    branches = answer(2)

    texts = noted(git, bus)
    assert [text.split("\n")[0] for text in texts] == ["kakeya: succeeded, signed by one's key"] * 2
    assert {text.split("\n")[-1] for text in texts} == {f"answer: {branch}" for branch in branches}
    assert git(bus, "rev-list", "--count", REF) == "2"
    assert git(bus, "for-each-ref", "refs/notes/").count("\n") == 0


def test_once_notes_its_answer_too(client, keyed, git, bus):
    run = client.run("noop")
    with keyed.context(bus={"notes": True}) as context:
        once(context, run.branch)

    assert noted(git, bus)[0].startswith("kakeya: succeeded, unsigned")


def test_what_others_note_meanwhile_stays(answer, git, bus, clone, monkeypatch):
    answer()
    note_by_another(git, clone, "Before.")
    fetch, raced = Bus.fetch_reference, []

    def late(self, ref):
        tip = fetch(self, ref)
        if len(raced) < 2:
            raced.append(tip)
            note_by_another(git, clone, f"Raced {len(raced)}.")
        return tip

    monkeypatch.setattr(Bus, "fetch_reference", late)
    (branch,) = answer()

    texts = noted(git, bus)
    assert texts[1:4] == ["Before.", "Raced 1.", "Raced 2."]
    assert texts[4].endswith(f"answer: {branch}")
    assert answer.waiting == []


def test_a_bus_that_refuses_notes_costs_no_answer(answer, keyed, git, bus):
    hook = bus / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\ncase "$1" in refs/notes/*) echo no notes here >&2; exit 1 ;; esac\n')
    hook.chmod(0o755)

    (branch,) = answer()

    assert answer.waiting == [branch]
    (told,) = [line for line in keyed.told if REF in line]
    assert "no notes here" in told
    assert "trying again later" in told


def test_notes_wait_for_room_in_the_push_budget(answer, git, bus):
    (branch,) = answer(pushes_per_minute=3)

    assert answer.waiting == [branch]
    assert git(bus, "for-each-ref", "refs/notes/") == ""


def test_a_commit_that_is_too_large_is_not_built_upon(answer, keyed, git, bus, clone, monkeypatch):
    monkeypatch.setattr("bridge.common.limits.COMMIT_BYTES", 2000)
    note_by = git(clone, "commit-tree", "HEAD^{tree}", "-F", "-", stdin="x" * 5000)
    git(clone, "push", "--quiet", "origin", f"{note_by}:{REF}")

    answer()

    assert git(bus, "rev-parse", REF) == note_by
    assert any("is too large" in line for line in keyed.told if REF in line)


def test_a_note_that_is_too_large_keeps_no_other_from_being_written(answer, keyed, client, git, bus, clone):
    git(clone, "notes", "--ref=kakeya", "add", "-F", "-", "HEAD", stdin="x" * (NOTE_BYTES + 1))
    git(clone, "push", "--quiet", "origin", f"{REF}:{REF}")
    full = client.run("noop").branch
    git(clone, "commit", "--quiet", "--allow-empty", "-m", "Another")

    (branch,) = answer()

    assert git(bus, "notes", "--ref=kakeya", "show", git(clone, "rev-parse", "HEAD")).endswith(branch)
    assert any(line.startswith(f"{full} is not noted: ") for line in keyed.told)
    assert answer.waiting == []
