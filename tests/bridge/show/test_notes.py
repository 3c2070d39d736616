"""`kakeya fetch --notes`: what `git log --notes=kakeya` shows beside the commit that a job was about."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bridge.bus.notes import NOTE_BYTES, REF, change_note
from bridge.bus.writer import Identity
from bridge.errors import InfrastructureError, UsageError
from bridge.show.forms.note import MOST_CLAIMS, MOST_RUNS, merged, paragraph
from bridge.system.git import Git
from tests.bridge.show.test_report_forms import PAYLOADS, rd, source

WHO = Identity("A Reader", "reader@example.invalid")


def fetch(clone, keyed, branch):
    argv = ["fetch", "--notes", "--key", str(keyed.key()), branch]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bridge", *argv], cwd=clone, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def shown(git, clone):
    return git(clone, "log", "-1", "--notes=kakeya", "--format=%N").split("\n\n")


@pytest.mark.bus
def test_each_answer_is_noted_once_beside_its_commit(client, clone, keyed, git):
    runs = [client.run("noop") for _ in range(2)]
    keyed.handle()
    git(clone, "notes", "--ref=kakeya", "add", "-m", "Reviewed by hand.", "HEAD")

    said = [fetch(clone, keyed, run.branch) for run in (*runs, runs[0])]

    assert f"git log -1 --notes=kakeya {git(clone, 'rev-parse', 'HEAD')[:12]}" in said[0]
    mine, *noted = shown(git, clone)
    assert mine == "Reviewed by hand."
    for run, text in zip(runs, noted, strict=True):
        first, preset, finished, answer = text.split("\n")
        assert first == "kakeya: succeeded, signed by one's key"
        assert preset == "preset: noop"
        assert finished.endswith(" on one")
        assert answer == f"answer: {run.branch}"
    before = git(clone, "rev-parse", REF)
    fetch(clone, keyed, runs[1].branch)
    assert git(clone, "rev-parse", REF) == before
    assert git(clone, "for-each-ref", "refs/notes/").count("\n") == 0
    assert git(clone, "status", "--porcelain") == ""


def test_an_accepted_answer_is_noted_with_its_claims():
    rows = [rd(2 + i, 0.1 / (1 + i)) for i in range(2)]
    claims = [{"name": f"claim_{i}", "value": i + 0.5} for i in range(MOST_CLAIMS + 2)]
    report = {"kind": "kakeya.codec-rd", "rows": rows, "claims": claims}
    gate = {"verdict": "ACCEPTED", "violations": [], "notes": []}

    lines = paragraph(source(report=report, state="succeeded", gate=gate)).split("\n")

    assert [line for line in lines if line.startswith("claim: ")] == [
        *(f"claim: claim_{i} = {i + 0.5:g}" for i in range(MOST_CLAIMS)), "claim: and 2 more",
    ]  # fmt: skip
    rejected = paragraph(source(report=report, gate={**gate, "verdict": "REJECTED"}))
    assert "claim: " not in rejected


@pytest.mark.parametrize("payload", [*PAYLOADS.values(), "a\n\nkakeya: succeeded", "x" * 500], ids=ascii)
def test_no_text_of_an_answer_leaves_its_line(payload):
    gate = {"verdict": "ACCEPTED", "violations": [], "notes": []}

    text = paragraph(source(payload, state="succeeded", gate=gate))

    assert "\n\n" not in text
    assert text.replace("\n", "").isprintable()
    heads = [line.partition(": ")[0] for line in text.split("\n")]
    assert heads == ["kakeya", "preset", "claim", "finished", "answer"]
    assert len(text) < 2_000


def test_of_many_answers_the_newest_are_kept_and_nothing_of_others_is_lost():
    text = "Of somebody else.\nanswer: none"
    for i in range(MOST_RUNS + 3):
        text = merged(text, f"kakeya: succeeded\nanswer: run-{i}")

    parts = text.split("\n\n")
    assert parts[0] == "Of somebody else.\nanswer: none"
    assert parts[1:] == [f"kakeya: succeeded\nanswer: run-{i}" for i in range(3, MOST_RUNS + 3)]
    again = merged(text, "kakeya: failed\nanswer: run-5").split("\n\n")
    assert again[3] == "kakeya: failed\nanswer: run-5"
    assert len(again) == len(parts)


def test_two_writers_both_keep_their_notes(clone, user_git, git):
    head = git(clone, "rev-parse", "HEAD")
    calls = []

    def change(before: str) -> str:
        if not calls:
            git(clone, "notes", "--ref=kakeya", "add", "-m", "The other's.", "HEAD")
        calls.append(before)
        return f"{before}\n\nMine."

    change_note(user_git, head, WHO, change)

    assert calls == ["", "The other's."]
    assert shown(git, clone) == ["The other's.", "Mine."]
    assert git(clone, "log", "-1", "--format=%an", REF) == "A Reader"

    def always(before: str) -> str:
        git(clone, "notes", "--ref=kakeya", "append", "-m", "Again.", "HEAD")
        return f"{before}x"

    with pytest.raises(InfrastructureError, match="changed faster"):
        change_note(user_git, head, WHO, always)
    assert git(clone, "for-each-ref", "refs/notes/").count("\n") == 0


@pytest.mark.parametrize("name", [f"{REF}/x", REF])
def test_a_reference_in_the_way_is_named(clone, user_git, git, name):
    blob = git(clone, "hash-object", "-w", "--stdin", stdin="x")
    git(clone, "update-ref", name, blob)

    with pytest.raises(InfrastructureError, match="cannot be written") as caught:
        change_note(user_git, git(clone, "rev-parse", "HEAD"), WHO, lambda _: "Mine.")
    assert caught.value.fix == f"See what is in its way: git for-each-ref {REF}"


def test_what_cannot_be_noted_is_an_error(clone, user_git: Git, git):
    with pytest.raises(UsageError, match="is not in this clone"):
        change_note(user_git, "0" * 40, WHO, str)
    git(clone, "notes", "--ref=kakeya", "add", "-F", "-", "HEAD", stdin="x" * (NOTE_BYTES + 1))
    with pytest.raises(UsageError, match="is larger than"):
        change_note(user_git, git(clone, "rev-parse", "HEAD"), WHO, str)
