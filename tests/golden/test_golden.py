"""Behaviour is as recorded, until a redesign is over. A failure names the command that records a group again."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from bridge.client import Client
from bridge.presets import load_presets
from bridge.reports.claims import derive_claims
from bridge.verify.check import Report
from bridge.verify.folder import verify_folder
from bridge.verify.public_keys import find_pin
from tests.golden import claims
from tests.golden.groups import GROUPS, difference
from tests.golden.record_answers import ANSWERS, FOLDER

PUBLIC_KEY = FOLDER / "runner.pub"


def derived_claims(report: dict[str, Any]) -> list[Any]:
    """Return the claims that the rows of a report give, as far as the report makes them: it may be older than some."""
    written = {_about(claim) for claim in report["claims"]}
    return [claim for claim in derive_claims(report) if _about(claim) in written]


def _about(claim: dict[str, Any]) -> str:
    return json.dumps([claim["name"], claim.get("arm"), claim.get("against"), claim.get("where", {})])


def check(group: str) -> None:
    found = difference(group, GROUPS[group]())
    assert not found, found


def test_argv_of_every_preset():
    check("argv")


def test_help_of_every_command():
    check("help")


def test_openapi_document():
    check("openapi")


@pytest.mark.long
def test_event_streams():
    check("transcripts")


@pytest.mark.long
def test_verdicts_of_the_gate():
    check("gate")


def test_claims():
    found = difference("claims", claims.texts(derived_claims))
    assert not found, found


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
