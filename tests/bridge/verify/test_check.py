"""An answer that was tampered with does not verify, and the check that failed says so."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from bridge.bus import objects, wire
from bridge.bus.objects import Identity
from bridge.cli.gate import show_gate
from bridge.client import Client
from bridge.errors import UsageError, VerificationError
from tests.bridge.gate import jobs, reports

pytestmark = pytest.mark.bus

REPORT = "results/research/report.json"
WRITE_REPORT = jobs.program(jobs.on_any_host(reports.codec_rd()), REPORT)


@dataclass
class Answer:
    """A bus with one answer on it, a clone of it, and what tampering needs."""

    client: Client
    branch: str
    bus: Path
    out: Path
    git: Callable[..., str]

    @property
    def tip(self) -> str:
        return self.git(self.bus, "rev-parse", f"refs/heads/{self.branch}")

    def result(self) -> dict:
        return json.loads(self.git(self.bus, "show", f"{self.branch}:{wire.RESULT}"))

    def rewrite(
        self, files: dict[str, bytes | None], *, branch: str = "", parents: list[str] | None = None
    ) -> None:
        """Replace the answer's commit by one with other files, as whoever may push could."""
        git = self.client.git
        self.client.remote.fetch(self.branch)
        tree = objects.overlay(git, f"{self.tip}^{{tree}}", files)
        parents = [self.tip + "^"] if parents is None else parents
        parents = [git.text("rev-parse", parent) for parent in parents]
        commit = objects.commit(git, tree, parents, "Tampered\n", Identity("x", "x@y"))
        git("push", "--quiet", "--force", "origin", f"{commit}:refs/heads/{branch or self.branch}")

    def change(self, **fields: object) -> None:
        """Replace fields of the result."""
        self.rewrite({wire.RESULT: json.dumps({**self.result(), **fields}).encode()})

    def with_file(self, path: str, content: bytes) -> list[dict]:
        """Return the result's list of files with one more, whose digest is right."""
        digest = hashlib.sha256(content).hexdigest()
        others = [file for file in self.result()["files"] if file["path"] != path]
        return [*others, {"path": path, "sha256": digest, "size": len(content)}]

    def measured(self) -> dict:
        """Return the report that the job measured."""
        return json.loads(self.git(self.bus, "show", f"{self.branch}:{REPORT}"))

    def failed(self) -> list[str]:
        """Return the names of the checks that fail."""
        self.client.remote.fetch(self.branch)
        report = self.client.verify(self.branch)
        names = [check.name for check in report.checks if check.ok is False]
        assert report.holds is not bool(names)
        return names


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where the one real answer of this module is kept; made by the first test that needs it."""
    return {"folder": tmp_path_factory.mktemp("answer") / "kept"}


@pytest.fixture
def answer(made, bus, clone, git, runners, tmp_path) -> Answer:
    presets = tmp_path / "presets"
    presets.mkdir()
    job = {
        "name": "job",
        "description": "Write a report.",
        "code": "installed",
        "timeout_s": 60,
        "params": {"n": {"type": "int", "min": 1, "max": 9, "default": 5}},
        "steps": [
            {"argv": ["${ENV:KAKEYA_MAC_PYTHON}", "-c", WRITE_REPORT]},
            {"argv": ["/bin/echo", "{n}"]},
        ],
        "collect": [REPORT],
        "gate": "reports",
    }
    (presets / "job.yaml").write_text(yaml.safe_dump(job))
    client = Client(clone, presets=presets)
    kept = made["folder"]
    if kept.exists():
        shutil.rmtree(bus)
        shutil.copytree(kept, bus)
        [branch] = client.remote.fetch("mac-bridge/*")
    else:
        runner = runners.start(preset_folder=str(presets))
        run = client.run("job", {"n": 3})
        assert run.wait(120).state == "succeeded"
        runner.stop()
        branch = run.branch
        shutil.copytree(bus, kept)
    # A client that has read no preset yet, whichever test comes first.
    return Answer(Client(clone, presets=presets), branch, bus, tmp_path / "out", git)


def test_an_untouched_answer_holds(answer):
    assert answer.failed() == []
    report = answer.client.verify(answer.branch)
    assert {check.name: check.ok for check in report.checks} == {
        "answer": True, "history": True, "request": True, "files": True, "preset": True, "argv": True,
        "gate": True, "run": True, "times": True, "logs": True, "signature": None,
    }  # fmt: skip


RUNNER = {"id": "another", "instance": "x", "version": "1"}
COMMAND = {"argv": ["/bin/echo", "3"], "exit_code": 0, "seconds": 0.1, "log": ".mac-bridge/logs/job-1.log"}

FIELDS = {
    "state": ({"state": "failed"}, "history"),
    "state to refused": ({"state": "refused"}, "history"),
    "state to running": ({"state": "running"}, "history"),
    "runner": ({"runner": RUNNER}, "history"),
    "claim": ({"token": 7}, "history"),
    "exit code": ({"exit_code": 1}, "answer"),
    "a parameter": ({"params": {"n": 4}}, "request"),
    "a parameter left out": ({"params": {}}, "request"),
    "preset": ({"preset": "other"}, "request"),
    "whose code ran": ({"code": None}, "preset"),
    "the requester's code, and a verdict on the owner's": ({"code": "request"}, "answer"),
    "nonce": ({"nonce": "1700000000-abc123"}, "request"),
    "who asked": ({"requested_by": "somebody else"}, "request"),
    "workload": ({"workload": "0" * 40}, "request"),
    "branch": ({"branch": "mac-bridge/job-1700000000-abc123"}, "request"),
    "a request elsewhere": ({"request": "0" * 40}, "history"),
    "a command left out": ({"commands": [COMMAND]}, "argv"),
    "all commands left out": ({"commands": []}, "argv"),
    "a command more": ({"commands": [COMMAND] * 3}, "argv"),
    "another command": ({"commands": [COMMAND, {**COMMAND, "argv": ["/bin/echo", "4"]}]}, "argv"),
    "a file left out": ({"files": []}, "files"),
    "an unknown field": ({"trust": "me"}, "answer"),
    "a field of another type": ({"token": "1"}, "answer"),
}


def test_a_changed_field_of_the_result_is_noticed(answer):
    whole = answer.tip
    for what, (fields, check) in FIELDS.items():
        answer.change(**fields)
        assert check in answer.failed(), what
        answer.git(answer.bus, "update-ref", f"refs/heads/{answer.branch}", whole)


def test_another_argv_is_noticed(answer):
    commands = answer.result()["commands"]
    commands[1]["argv"][-1] = "4"
    answer.change(commands=commands)
    assert answer.failed() == ["argv"]


def test_another_exit_code_of_a_command_is_noticed(answer):
    commands = answer.result()["commands"]
    commands[1]["exit_code"] = 1
    answer.change(commands=commands)
    assert answer.failed() == ["answer"]


def test_the_workload_in_place_of_the_request_is_noticed(answer):
    answer.change(request=answer.result()["workload"])
    assert "history" in answer.failed()


def test_a_report_that_lies_is_noticed_where_all_digests_are_right(answer):
    lie = answer.measured()
    lie["rows"][0] |= {"rel_mse": 0.001, "rel_mse_stderr": 0.0001}
    content = json.dumps(lie).encode()
    listed = {**answer.result(), "files": answer.with_file(REPORT, content)}
    answer.rewrite({REPORT: content, wire.RESULT: json.dumps(listed).encode()})
    assert answer.failed() == ["gate"]


def test_the_verdict_is_told_with_reasons_and_what_mends_them(answer, capsys):
    lie = answer.measured()
    lie["rows"][0]["limit"] = 0.5
    content = json.dumps(lie).encode()
    listed = {**answer.result(), "files": answer.with_file(REPORT, content)}
    answer.rewrite({REPORT: content, wire.RESULT: json.dumps(listed).encode()})
    answer.client.remote.fetch(answer.branch)
    report = answer.client.verify(answer.branch)
    assert report.as_dict()["gate"]["verdict"] == "REJECTED"
    show_gate(report.gate)
    shown = capsys.readouterr().out
    assert f"{REPORT}: LIMIT_WRONG" in shown
    assert "fix: compute the limit from the stored bits" in shown


def test_an_answer_that_was_rejected_there_holds_and_is_told_of(answer):
    violation = {"code": "LIMIT_WRONG", "message": "x", "path": REPORT}
    gate = {"verdict": "REJECTED", "violations": [violation]}
    answer.change(gate=gate, state="gate_rejected", exit_code=5)
    answer.client.remote.fetch(answer.branch)
    checks = {check.name: check.ok for check in answer.client.verify(answer.branch).checks}
    # Nothing is wrong with the report, which the rules installed here accept: worth knowing, no reason to doubt.
    assert (checks["gate"], checks["answer"]) == (None, True)


def test_a_report_left_out_of_the_answer_and_its_list_is_noticed(answer):
    files = [file for file in answer.result()["files"] if file["path"] != REPORT]
    answer.rewrite({REPORT: None, wire.RESULT: json.dumps({**answer.result(), "files": files}).encode()})
    assert answer.failed() == ["gate"]


def test_another_verdict_of_the_gate_is_noticed(answer):
    answer.change(gate={"verdict": "REJECTED", "violations": []})
    assert answer.failed() == ["answer"]


FILES = {
    "a changed log": {".mac-bridge/logs/job-1.log": b"4\n"},
    "a changed report": {REPORT: b"{}"},
    "a changed summary": {wire.SUMMARY: b"{}"},
    "a log removed": {".mac-bridge/logs/job-1.log": None},
    "a report removed": {REPORT: None},
    "a report added": {"results/research/more.json": b"{}"},
    "a file added beside the log": {".mac-bridge/logs/job-9.log": b"x"},
    "a file added to the workload": {"more.txt": b"x"},
    "a file of the workload changed": {"readme.txt": b"x"},
    "a file of the workload removed": {"readme.txt": None},
    "the request changed in the answer": {wire.REQUEST: b"{}"},
}


@pytest.mark.rows(3)
@pytest.mark.parametrize("files", FILES.values(), ids=FILES)
def test_a_changed_file_is_noticed_and_nothing_is_fetched(answer, files):
    answer.rewrite(files)
    # A report that is spoilt is no longer one that the gate accepts, either.
    assert answer.failed() == (["files", "gate"] if REPORT in files else ["files"])
    with pytest.raises(VerificationError, match="nothing was written: files"):
        answer.client.fetch(answer.branch, answer.out)
    assert not answer.out.exists()
    assert not list(answer.out.parent.glob(".out.*"))


def test_an_executable_in_place_of_a_log_is_noticed(answer):
    answer.change(files=answer.with_file("readme.txt", b"x"))
    assert "files" in answer.failed()


def test_a_file_of_the_workload_that_is_listed_as_the_answers_is_noticed(answer):
    content = b"evil"
    listed = {**answer.result(), "files": answer.with_file("readme.txt", content)}
    answer.rewrite({"readme.txt": content, wire.RESULT: json.dumps(listed).encode()})
    assert answer.failed() == ["files"]


@pytest.mark.parametrize(
    "path", ["../x", "/etc/x", "results/research/../../x", ".git/config", ".mac-bridge/../x"]
)
def test_a_file_outside_the_answers_folders_is_noticed(answer, path):
    answer.change(files=answer.with_file(path, b"x"))
    assert "files" in answer.failed()


def test_a_log_that_is_not_what_was_streamed_is_noticed(answer):
    path, content = ".mac-bridge/logs/job-1.log", b"4\n"
    listed = {**answer.result(), "files": answer.with_file(path, content)}
    answer.rewrite({path: content, wire.RESULT: json.dumps(listed).encode()})
    assert answer.failed() == ["files"]


@pytest.mark.rows(3)
@pytest.mark.parametrize("content", [None, b"", b"{}", b"[]", b"not JSON", b"\xff"], ids=str)
def test_a_result_that_is_none_is_noticed(answer, content):
    answer.rewrite({wire.RESULT: content})
    assert answer.failed() == ["answer"]


def test_a_commit_on_top_is_noticed(answer):
    answer.rewrite({"more.txt": b"x"}, parents=[answer.tip])
    assert "history" in answer.failed()


def test_an_empty_commit_on_top_is_noticed(answer):
    answer.rewrite({}, parents=[answer.tip])
    assert answer.failed() == ["history"]


def test_rewritten_history_is_noticed(answer):
    answer.rewrite({}, parents=["refs/remotes/origin/main"])
    assert "history" in answer.failed()


def test_an_answer_upon_the_state_of_a_later_claim_is_noticed(answer):
    git = answer.client.git
    answer.client.remote.fetch(answer.branch)
    before = git.text("rev-parse", f"{answer.tip}^")
    state = json.loads(git.text("show", f"{before}:{wire.STATE}"))
    later = json.dumps(state | {"token": state["token"] + 1, "salt": "0" * 16}).encode()
    tree = objects.overlay(git, f"{before}^{{tree}}", {wire.STATE: later})
    answer.rewrite({}, parents=[objects.commit(git, tree, [before], "A later claim\n", Identity("x", "x@y"))])

    assert answer.failed() == ["history"]


def test_the_answer_of_another_request_is_noticed(answer):
    other = answer.client.run("job", {"n": 3}).branch
    answer.rewrite({}, branch=other, parents=[other_tip := answer.client.view(other).tip])
    assert other_tip
    report = answer.client.verify(other)
    assert [check.name for check in report.checks if check.ok is False] == ["answer"]


def test_the_answer_of_another_request_with_its_state_rewritten_is_noticed(answer):
    other = answer.client.run("job", {"n": 3})
    state = json.loads(answer.git(answer.bus, "show", f"{answer.branch}:{wire.STATE}"))
    state |= {"branch": other.branch, "request": other.commit}
    answer.rewrite({wire.STATE: json.dumps(state).encode()}, branch=other.branch, parents=[other.commit])
    report = answer.client.verify(other.branch)
    assert {"history", "request"} <= {check.name for check in report.checks if check.ok is False}


def test_a_preset_that_differs_here_is_told_and_is_no_failure(answer, tmp_path):
    file = tmp_path / "presets" / "job.yaml"
    file.write_text(file.read_text().replace("timeout_s: 60", "timeout_s: 61"))
    checks = {check.name: check for check in answer.client.verify(answer.branch).checks}
    assert checks["preset"].ok is None
    assert "differs" in checks["preset"].message
    assert "argv" not in checks


def test_a_preset_that_is_not_installed_here_is_told_and_is_no_failure(answer, clone):
    checks = {check.name: check for check in Client(clone).verify(answer.branch).checks}
    assert checks["preset"].ok is None
    assert "not installed here" in checks["preset"].message


def test_a_request_without_an_answer_does_not_verify(client):
    report = client.run("noop").verify()
    assert not report.holds
    assert "no answer yet" in report.checks[0].message


def test_an_answer_is_written_whole(answer):
    fetched = answer.client.fetch(answer.branch, answer.out)
    assert {str(path.relative_to(answer.out)) for path in fetched.files} == {
        wire.RESULT, wire.SUMMARY, REPORT, ".mac-bridge/logs/job-0.log", ".mac-bridge/logs/job-1.log",
    }  # fmt: skip
    assert (answer.out / ".mac-bridge/logs/job-1.log").read_text() == "3\n"
    written = [path for path in answer.out.rglob("*") if path.is_file()]
    assert sorted(written) == sorted([*fetched.files, answer.out / ".git"])


def test_a_second_fetch_replaces_the_first(answer):
    answer.client.fetch(answer.branch, answer.out)
    (answer.out / REPORT).write_text("changed since")
    answer.client.fetch(answer.branch, answer.out)
    assert json.loads((answer.out / REPORT).read_text()) == answer.measured()


def test_a_folder_that_holds_something_else_is_left_alone(answer):
    answer.out.mkdir()
    (answer.out / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds something else"):
        answer.client.fetch(answer.branch, answer.out)
    assert [path.name for path in answer.out.iterdir()] == ["mine.txt"]


def test_a_folder_with_an_earlier_answer_and_something_else_is_left_alone(answer):
    answer.client.fetch(answer.branch, answer.out)
    (answer.out / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds something else"):
        answer.client.fetch(answer.branch, answer.out)
    assert (answer.out / "mine.txt").read_text() == "mine"


def test_a_repository_into_which_an_answer_was_merged_is_left_alone(answer, clone, git):
    git(clone, "reset", "--quiet", "--hard", f"refs/kakeya/{answer.branch}")
    with pytest.raises(UsageError, match="holds something else"):
        answer.client.fetch(answer.branch, clone)
    assert (clone / ".git").is_dir()
    assert (clone / "readme.txt").exists()


def test_a_file_in_the_place_of_the_folder_is_left_alone(answer):
    answer.out.write_text("mine")
    with pytest.raises(UsageError, match="holds something else"):
        answer.client.fetch(answer.branch, answer.out)
    assert answer.out.read_text() == "mine"


def test_an_empty_folder_is_filled(answer):
    answer.out.mkdir()
    answer.client.fetch(answer.branch, answer.out)
    assert (answer.out / wire.RESULT).exists()


def test_the_folder_is_named_after_the_request(answer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fetched = answer.client.fetch(answer.branch)
    assert str(fetched.folder) == f"kakeya-results/job-{answer.result()['nonce']}"
