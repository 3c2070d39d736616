"""An answer in a folder gets the checks that its branch gets, but for those that need the branch."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.bus import wire
from bridge.common import limits
from bridge.errors import UsageError, VerificationError
from bridge.gate import run_id
from bridge.presets import Preset, load_presets
from bridge.verify import attestation
from bridge.verify.folder import verify_folder
from bridge.verify.public_keys import Pin
from runner.state import signing_key
from tests.bridge.gate import reports

BRANCH, REQUEST = "mac-bridge/job-1700000000-abc123", "c" * 40
REPORT, LOG = "results/research/report.json", ".mac-bridge/logs/job-0.log"
JOB = {
    "name": "job", "description": "Write a report.", "code": "installed", "timeout_s": 60,
    "params": {"n": {"type": "int", "min": 1, "max": 9, "default": 5}}, "steps": [{"argv": ["/bin/echo", "{n}"]}],
    "collect": [REPORT], "gate": "reports",
}  # fmt: skip


@dataclass
class Fetched:
    """A folder as `kakeya fetch` writes it, and what its checks say."""

    folder: Path
    presets: dict[str, Preset]
    result: dict[str, Any]
    pin: Pin | None = None

    def put(self, path: str, data: bytes) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(data)

    def write(self, report: dict[str, Any], **changes: Any) -> None:
        """Write a whole answer: a report, its log, and a result that is about both."""
        log = reports.as_log(*reports.log_lines(report))
        files = {REPORT: json.dumps(report).encode(), LOG: log}
        stream = hashlib.sha256(log).hexdigest()
        listed = [
            {"path": path, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
            for path, data in files.items()
        ]
        logs = [{"path": LOG, "stream_sha256": stream, "stream_bytes": len(log), "kept_bytes": len(log),
                 "truncated": False}]  # fmt: skip
        self.result |= {"files": listed, "logs": logs, **changes}
        for path, data in {**files, wire.RESULT: json.dumps(self.result).encode()}.items():
            self.put(path, data)

    def sign(self, state: Path) -> None:
        """Sign what lies there, as a runner does before it is fetched, and pin the key."""
        signing_key.make_key(state)
        result = wire.parse_result((self.folder / wire.RESULT).read_bytes())
        here = {path: (self.folder / path).read_bytes() for path in (wire.RESULT, REPORT, LOG)}
        statement = attestation.make_statement(
            result, attestation.digests(here | {wire.REQUEST: b"{}"}), "d" * 40
        )
        signer = signing_key.load_signer(state)
        assert signer is not None
        self.put(wire.EVIDENCE, attestation.sign(statement, signer))
        self.pin = Pin((signing_key.public_key(state),), "a test")

    def checks(self) -> dict[str, bool | None]:
        _, report, _ = verify_folder(self.folder, self.presets, self.pin)
        return {check.name: check.ok for check in report.checks}

    def failed(self) -> list[str]:
        return [name for name, ok in self.checks().items() if ok is False]


@pytest.fixture
def fetched(tmp_path) -> Fetched:
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets" / "job.yaml").write_text(yaml.safe_dump(JOB))
    presets = load_presets(tmp_path / "presets")
    result = {
        "schema_version": 2, "state": "succeeded", "reason": {"code": "succeeded", "message": "it ended with 0"},
        "branch": BRANCH, "nonce": "1700000000-abc123", "request": REQUEST, "workload": None, "requested_by": "x",
        "preset": "job", "preset_digest": presets["job"].digest, "code": "installed", "params": {"n": 3},
        "commands": [{"argv": ["/bin/echo", "3"], "exit_code": 0, "seconds": 800.0, "log": LOG}], "exit_code": 0,
        "token": 1, "runner": {"id": "one", "instance": "i", "version": "1"}, "host": {}, "versions": {},
        "started_at": "2026-01-31T11:50:00Z", "finished_at": "2026-01-31T12:05:00Z", "seconds": 900.0,
        "gate": {"verdict": "ACCEPTED"},
    }  # fmt: skip
    made = Fetched(tmp_path / "fetched", presets, result)
    made.write(report_of())
    return made


def report_of(run: str = run_id(BRANCH, REQUEST, 1)) -> dict[str, Any]:
    return reports.spec_bench() | {"run": {"id": run}}


def test_an_untouched_answer_gets_each_check_that_needs_no_branch(fetched, tmp_path):
    assert fetched.checks() == {
        "answer": None, "files": True, "preset": True, "argv": True, "run": True, "gate": True, "times": True,
        "signature": None,
    }  # fmt: skip
    fetched.sign(tmp_path / "state")
    assert fetched.checks()["signature"] is True


def test_a_report_of_another_run_does_not_hold(fetched):
    """Its digests fit, and the rules take it: only the binding to its run shows where it is from."""
    fetched.write(report_of(run_id(BRANCH, "d" * 40, 1)))
    assert fetched.failed() == ["gate"]


CHANGES = {
    "an exit code": ({"exit_code": 1}, "answer"),
    "a command": ({"commands": [{"argv": ["/bin/echo", "4"], "exit_code": 0, "seconds": 800.0, "log": LOG}]}, "argv"),
    "a parameter": ({"params": {"n": 4}}, "argv"),
    "times": ({"seconds": 100.0}, "times"),
    "a file left out": ({"files": []}, "files"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "check"), CHANGES.values(), ids=CHANGES)
def test_a_result_that_was_changed_does_not_hold(fetched, tmp_path, changes, check):
    fetched.sign(tmp_path / "state")
    fetched.result |= changes
    fetched.put(wire.RESULT, json.dumps(fetched.result).encode())
    assert {check, "signature"} <= set(fetched.failed())


def test_files_that_were_changed_added_or_removed_do_not_hold(fetched):
    fetched.put(LOG, b"all is well\n")
    assert fetched.failed() == ["files", "gate"]
    fetched.write(report_of())
    fetched.put(".mac-bridge/logs/more.log", b"")
    assert fetched.failed() == ["files"]
    (fetched.folder / ".mac-bridge/logs/more.log").unlink()
    (fetched.folder / REPORT).unlink()
    assert fetched.failed() == ["files", "gate"]


@pytest.mark.parametrize("path", [wire.CANCEL, wire.STATE, wire.REQUEST, "results/research/more.json"])
def test_row_125_a_fetched_folder_holds_what_was_fetched_alone(fetched, tmp_path, path):
    fetched.sign(tmp_path / "state")
    fetched.put(path, b"{}")
    assert "files" in fetched.failed()


@pytest.mark.parametrize("link", [LOG, ".mac-bridge/logs", ".mac-bridge", "results"])
def test_nothing_is_read_through_a_link(fetched, tmp_path, link):
    place = fetched.folder / link
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    assert "files" in fetched.failed()


def test_evidence_that_is_missing_or_too_large_does_not_hold(fetched, tmp_path):
    fetched.sign(tmp_path / "state")
    fetched.put(wire.EVIDENCE, b" " * (wire.MAX_EVIDENCE + 1))
    assert fetched.failed() == ["signature"]
    (fetched.folder / wire.EVIDENCE).unlink()
    assert fetched.failed() == ["signature"]


def test_an_answer_to_no_preset_is_judged_without_one(fetched):
    fetched.write(report_of(), preset=None, preset_digest=None)
    assert fetched.checks().keys() == {"answer", "files", "times", "signature"}


def test_what_is_no_answer_or_too_large_is_an_error(fetched, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="holds no answer"):
        verify_folder(tmp_path, {}, None)
    monkeypatch.setattr(limits, "ANSWER_BYTES", 10)
    with pytest.raises(VerificationError, match="together are larger"):
        verify_folder(fetched.folder, fetched.presets, None)
