"""Answers and reports of earlier versions: they verify, and mean what they meant."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from bridge.client import Client
from bridge.gate import check_report
from bridge.presets import load_presets
from bridge.reports.claims import derive_claims
from bridge.verify.check import Report
from bridge.verify.folder import verify_folder
from bridge.verify.public_keys import find_pin
from tests.golden.record_answers import ANSWERS, FOLDER

PUBLIC_KEY = FOLDER / "runner.pub"


# Those that were published then, and those of real runs among the tests of the gate.
REPORTS = sorted(
    path
    for folder in ("golden/reports", "bridge/gate/real")
    for path in (Path(__file__).parents[1] / folder).glob("*.json.gz")
)


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_report_of_an_earlier_version_has_its_claims_and_lacks_only_its_run(path):
    report = json.loads(gzip.decompress(path.read_bytes()))
    written = [about(claim) for claim in report["claims"]]

    # It may be older than some kinds of claim.
    assert [claim for claim in derive_claims(report) if about(claim) in written] == report["claims"]
    assert [fault.code for fault in check_report(report)] == ["NO_RUN"]


def about(claim: dict[str, Any]) -> list[Any]:
    return [claim["name"], claim.get("arm"), claim.get("against"), claim.get("where", {})]


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the bus on which the answers were given."""
    folder = tmp_path_factory.mktemp("golden")
    bare, cloned = folder / "bus.git", folder / "clone"
    _clone(FOLDER / "bus.bundle", bare, "--mirror")
    _clone(bare, cloned)
    return cloned


def _clone(source: Path, target: Path, *options: str) -> None:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "clone", "--quiet", *options, str(source), str(target)], check=True, env=env)


@pytest.mark.parametrize("name", ANSWERS)
def test_exported_answer_verifies(name, tmp_path):
    with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    _, report, files = verify_folder(tmp_path, load_presets(), find_pin(None, "origin", PUBLIC_KEY))
    assert set(files) == {file.path for file in report.result.files}
    expect_verified(name, report)


@pytest.mark.parametrize("name", ANSWERS)
def test_answer_on_its_branch_verifies(name, bus):
    client = Client(bus, public_key=PUBLIC_KEY)
    branches = [status.branch for status in client.list() if f"/{ANSWERS[name].preset}-" in status.branch]
    assert len(branches) == 1
    expect_verified(name, client.verify(branches[0]))


def expect_verified(name: str, report: Report) -> None:
    """The checks and the verdict are those of the recorded version, whose presets are installed."""
    checks = {check.name: check.ok for check in report.checks}
    assert report.holds, report.checks
    assert checks["signature"] is True
    assert checks["files"] is True
    answer = ANSWERS[name]
    assert (report.result.preset, report.result.state) == (answer.preset, answer.state)
    if answer.state == "succeeded":
        assert checks["preset"] is checks["argv"] is checks["run"] is checks["gate"] is True
        assert report.gate.verdict == report.result.gate.verdict == "ACCEPTED"
