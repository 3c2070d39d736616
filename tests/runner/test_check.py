"""`kakeya-runner check`: each problem of a host, with its remedy."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.fixture
def check(runners, tmp_path):
    def run(**policy: object) -> dict[str, list[dict[str, object]]]:
        argv = [
            sys.executable,
            "-P",
            "-m",
            "runner",
            "--policy",
            str(runners.policy("one", **policy)),
            "check",
            "--json",
        ]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
        report = json.loads(done.stdout)
        assert done.returncode == (0 if report["ready"] else 1)
        found: dict[str, list[dict[str, object]]] = {}
        for line in report["checks"]:
            found.setdefault(line["name"], []).append(line)
        return found

    return run


def test_a_good_host_is_ready_and_says_what_it_is(check):
    found = check(presets=["noop"])
    assert {"git", "policy", "trust", "state", "host", "versions", "bus", "push", "squatting", "disk", "jobs",
            "interpreter", "preset"} <= set(found)  # fmt: skip
    assert [line for lines in found.values() for line in lines if line["ok"] is False] == []
    assert "cores" in found["host"][0]["message"]
    assert "kakeya_bridge 0." in found["versions"][0]["message"]


def test_every_problem_names_its_remedy(check, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights.safetensors").write_bytes(
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n"
    )
    good = tmp_path / "good"
    good.mkdir()
    found = check(
        presets=["noop"],
        interpreter_version="3.2.1",
        trust={"code_request": "allow"},
        env={
            "A_MISSING_MODEL": "/nowhere/model", "A_HOME": "~/models", "A_POINTER": str(model), "A_MODEL": str(good),
            "A_WORD": "word",
        },
    )  # fmt: skip
    settings = {line["message"].partition(":")[0]: line for line in found["setting"]}
    assert set(settings) == {"A_MISSING_MODEL", "A_HOME", "A_POINTER", "A_MODEL"}
    assert settings["A_MODEL"]["ok"] is True
    assert "there is nothing at" in settings["A_MISSING_MODEL"]["message"]
    assert "pointer of git-lfs" in settings["A_POINTER"]["message"]
    assert f"git -C {model} lfs pull" in settings["A_POINTER"]["fix"]
    assert found["interpreter"][0]["ok"] is False
    wrong = [line for lines in found.values() for line in lines if line["ok"] is not True]
    assert len(wrong) >= 5
    assert [line for line in wrong if not line["fix"]] == []
