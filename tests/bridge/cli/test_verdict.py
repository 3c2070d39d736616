"""How `kakeya run --wait` and `kakeya wait` end: the answer is verified, and the exit code believes only what holds."""

from __future__ import annotations

import json
import sys

import pytest

from bridge.bus import wire
from bridge.cli import main
from bridge.client import Client

pytestmark = pytest.mark.bus

RUNS = {"steps": [{"argv": ["/bin/echo", "hello"]}]}


@pytest.fixture
def wait(clone, monkeypatch, capsys):
    """Run `kakeya wait` in this process; returns exit code, standard output and standard error."""

    def run(*args):
        capsys.readouterr()
        monkeypatch.chdir(clone)
        monkeypatch.setattr(sys, "argv", ["kakeya", "wait", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


@pytest.fixture
def answered(clone, keyed, presets, monkeypatch):
    """Answer a request for a job with this body by a runner that signs."""

    def run(**body):
        folder = str(presets(job=body))
        monkeypatch.setenv("KAKEYA_PRESETS", folder)
        sent = Client(clone).run("job")
        keyed.handle(preset_folder=folder)
        return sent

    return run


def test_it_says_whether_a_pinned_key_signed(wait, answered, keyed, clone, git):
    answered(**RUNS)

    code, _, said = wait()
    assert code == 0
    assert "checks hold; it is signed, but no key is pinned here\n" in said
    git(clone, "config", "kakeya.publicKey", str(keyed.key()))
    code, _, said = wait()
    assert code == 0
    assert "checks hold, signed with the pinned key\n" in said
    assert said.index("succeeded") < said.index("verified: ") < said.index("next: kakeya fetch")


def test_it_is_the_last_event_with_json(wait, answered):
    run = answered(**RUNS)

    code, out, said = wait("--json")

    *_, before, last = map(json.loads, out.splitlines())
    assert (code, said) == (0, "")
    assert (before["event"], before["state"]) == ("state", "succeeded")
    assert last["verified"].startswith("verified: ")
    del last["verified"]
    assert last.pop("reason")["code"] == "ok"
    assert last.pop("conclusion") == {
        "word": "succeeded", "verdict": None, "trust": "unpinned", "exit_code": 0,
        "text": "succeeded, signed by a key that is not pinned here",
        "voucher": "signed by a key that is not pinned here",
    }  # fmt: skip
    assert last == {
        "event": "answer", "branch": run.branch, "state": "succeeded", "exit_code": 0, "holds": True,
        "signed": False, "gate": None, "gaps": [],
    }  # fmt: skip


def test_the_last_event_says_why_a_job_did_not_succeed(wait, answered):
    answered(steps=[{"argv": ["/bin/false"]}])

    code, out, _ = wait("--json")

    *_, last = map(json.loads, out.splitlines())
    assert code == 1
    assert last["reason"]["code"] == "exit_code"


def test_the_verdict_of_the_gate_is_shown_with_what_would_mend_it(wait, answered):
    answered(steps=[{"argv": ["/bin/true"]}], collect=["results/research/x.json"], gate="reports")

    code, _, said = wait()

    assert code == 7
    assert "gate: INCOMPLETE, signed by a key that is not pinned here: no error was found" in said
    assert "  NO_REPORT " in said
    assert "    fix: " in said
    code, out, _ = wait("--json")
    last = json.loads(out.splitlines()[-1])
    assert (code, last["exit_code"], last["gate"]["verdict"]) == (7, 7, "INCOMPLETE")
    assert last["state"] == "gate_incomplete"


def test_what_was_not_collected_is_shown_beside_the_answer(wait, answered, tmp_path):
    link = f"rmdir results/research; ln -s {tmp_path} results/research"
    run = answered(steps=[{"argv": ["/bin/sh", "-c", link]}], collect=["results/research/x.json"])
    gaps = [
        "not collected: results/research: a link to a folder, which is not followed",
        "not collected: results/research/x.json: no such file was left",
    ]

    code, _, said = wait()

    assert code == 0
    assert [line.removeprefix("note: ") for line in said.splitlines() if line.startswith("note: ")] == gaps
    _, out, _ = wait("--json")
    assert json.loads(out.splitlines()[-1])["gaps"] == gaps
    report = run.verify()
    assert report.holds
    assert [check.message for check in report.checks if check.name == "gaps"] == ["; ".join(gaps)]


@pytest.mark.rows(1)
@pytest.mark.parametrize("pinned", [False, True])
def test_an_answer_that_does_not_hold_ends_with_1_whatever_it_says(
    wait, answered, forger, keyed, clone, git, pinned
):
    run = answered(**RUNS)
    if pinned:
        git(clone, "config", "kakeya.publicKey", str(keyed.key()))
    forger.rewrite(run.branch, {f"{wire.LOGS}/job-0.log": b"HELLO\n"})

    code, _, said = wait()

    assert code == 1
    assert "NOT verified: logs: .mac-bridge/logs/job-0.log is not what was streamed" in said
    code, out, _ = wait("--json")
    last = json.loads(out.splitlines()[-1])
    assert (code, last["exit_code"], last["holds"], last["state"]) == (1, 1, False, "succeeded")
