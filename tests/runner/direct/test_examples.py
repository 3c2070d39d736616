"""The examples of other queues: linted, and the hook run with a stand-in for Buildkite's agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.runner.direct.test_job import verified

EXAMPLES = Path(__file__).parents[3] / "examples"
HOOKS = EXAMPLES / "buildkite" / "hooks"
WORKFLOW = EXAMPLES / "once-on-actions" / "workflow.yaml"
AGENT = """#!/bin/sh
case "$1 $2" in
"meta-data get") cat "$AGENT/manifest.json" ;;
"artifact upload") cp "$3" "$AGENT/$3" ;;
*) exit 1 ;;
esac
"""


@pytest.fixture
def hook(alone, tmp_path):
    """Start the hook for a manifest as the agent would: in a process group of its own, with the agent on the PATH."""
    programs = tmp_path / "programs"
    programs.mkdir()
    runner = f'#!/bin/sh\nexec "{sys.executable}" -P -m runner --policy "{alone.policy}" "$@"\n'
    for name, text in (("buildkite-agent", AGENT), ("kakeya-runner", runner)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"

    def start(preset):
        (tmp_path / "manifest.json").write_bytes(alone.manifest(preset))
        env = {**os.environ, "PATH": path, "AGENT": str(tmp_path), "BUILDKITE_COMMAND": "touch never"}
        return subprocess.Popen(
            [HOOKS / "command"],
            env=env,
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return start


def is_whole(alone, tmp_path):
    with tarfile.open(tmp_path / "answer.tar") as tar:
        tar.extractall(tmp_path / "got", filter="data")
    return verified(alone, tmp_path / "got" / "answer").holds


@pytest.mark.long
@pytest.mark.parametrize(("preset", "code"), [("quick", 0), ("broken", 1), ("theirs", 4)])
def test_the_hook_ends_as_its_job(alone, hook, tmp_path, preset, code):
    with hook(preset) as process:
        process.communicate(timeout=120)

    assert process.returncode == code
    assert is_whole(alone, tmp_path)
    assert not (tmp_path / "never").exists()


@pytest.mark.long
def test_a_step_that_is_cancelled_has_an_answer(alone, hook, tmp_path):
    with hook("slow") as process:
        assert process.stderr
        assert any("begun" in line for line in process.stderr)
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=120)

    assert process.returncode == 6
    assert is_whole(alone, tmp_path)


@pytest.mark.long
def test_the_files_are_what_the_linters_take(tmp_path):
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    (folder / "once.yaml").write_text(WORKFLOW.read_text())
    programs = Path(sys.executable).parent
    check = [programs / "check-jsonschema", "--builtin-schema"]
    for argv in (
        [*check, "vendor.github-workflows", folder / "once.yaml"],
        [*check, "vendor.buildkite", EXAMPLES / "buildkite" / "pipeline.yml"],
        [programs / "zizmor", "--offline", "--no-progress", "--quiet", "--min-severity=medium", tmp_path],
        ["bash", "-n", HOOKS / "command"],
        ["bash", "-n", HOOKS / "checkout"],
    ):
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_may_push_nothing():
    workflow = yaml.safe_load(WORKFLOW.read_text())

    assert workflow["permissions"] == {}
    assert all("permissions" not in job for job in workflow["jobs"].values())
