"""The steps of the release workflow that are commands, run here as far as they need no service of others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.repo.programs import good, run

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "release.yaml"
JOBS = yaml.safe_load(WORKFLOW.read_text())["jobs"]


def uses(job):
    return [step["uses"].partition("@")[0] for step in JOBS[job]["steps"] if "uses" in step]


def test_only_a_tag_starts_it():
    # YAML 1.1 reads the bare word `on` as a boolean.
    assert yaml.safe_load(WORKFLOW.read_text())[True] == {"push": {"tags": ["v*"]}}


def test_each_job_may_do_what_it_must_and_no_more():
    assert {name: job["permissions"] for name, job in JOBS.items()} == {
        "build": {"contents": "read"},
        "publish": {"attestations": "write", "id-token": "write"},
        "announce": {"contents": "write"},
    }
    assert "secrets." not in WORKFLOW.read_text()


def test_what_publishes_runs_no_code_of_the_repository():
    publish = JOBS["publish"]
    assert publish["environment"]["name"] == "pypi"
    assert publish["needs"] == "build"
    assert [step for step in publish["steps"] if "run" in step] == []
    assert uses("publish") == [
        "actions/download-artifact",
        "actions/attest-build-provenance",
        "pypa/gh-action-pypi-publish",
    ]
    assert publish["steps"][-1]["with"]["attestations"] is True
    for job in ("publish", "announce"):
        assert "actions/checkout" not in uses(job)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_build_job_runs_here(tree, tmp_path):
    download = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", tmp_path / "try")
    tried = run(*download, "hatchling", cwd=tmp_path)
    if tried.returncode:
        pytest.skip(f"no package index is reached: {tried.stderr.strip().splitlines()[-1:]}")
    place, temp = tmp_path / "workspace", tmp_path / "temp"
    place.mkdir()
    temp.mkdir()
    for step in JOBS["build"]["steps"]:
        if step.get("uses", "").startswith("actions/checkout@"):
            good("git", "clone", "--quiet", tree, place / step["with"]["path"], cwd=place)
    version = re.search(r'^version = "(.*)"', (tree / "pyproject.toml").read_text(), re.MULTILINE)[1]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # pip would compile all that it installs; what the steps use of it is compiled when it is first imported.
    env = {"RUNNER_TEMP": str(temp), "PATH": path, "PIP_NO_COMPILE": "1"}

    said = {}
    for step in JOBS["build"]["steps"]:
        if "run" in step:
            script = temp / "step.sh"
            script.write_text(step["run"])
            wants = {
                name: text.replace("${{ github.ref_name }}", f"v{version}")
                for name, text in step.get("env", {}).items()
            }
            shell = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", script)
            said[step["name"]] = good(*shell, cwd=place, **env, **wants)

    assert len(said["Compare the builds with each other, the tag and the commit"].splitlines()) == 3
    assert re.search(r"^ok +push ", said["Try the wheel"], re.MULTILINE)
    assert sorted(path.name for path in (temp / "dist").iterdir()) == [
        f"kakeya_bridge-{version}-py3-none-any.whl",
        f"kakeya_bridge-{version}.tar.gz",
        f"kakeya_bridge_models-{version}-py3-none-any.whl",
    ]


@pytest.mark.parametrize(
    ("words", "why"),
    [(("build",), "usage: release/build FOLDER"), (("check", "x"), "usage: release/check FOLDER")],
)
def test_the_scripts_say_how_they_are_called(words, why):
    done = subprocess.run(
        [ROOT / "release" / words[0], *words[1:]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(why)


def test_an_interpreter_without_the_build_tools_is_named_before_anything_is_built(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    python = tmp_path / "bare" / "bin" / "python"

    done = subprocess.run(
        [ROOT / "release" / "build", tmp_path / "out", python], capture_output=True, text=True, check=False
    )

    assert (done.returncode, (tmp_path / "out").exists()) == (2, False)
    assert done.stderr.startswith(f"error: {python} has no build tools\n")
    assert "release/requirements/release.txt" in done.stderr
