"""`kakeya doctor` in repositories that lack something: each thing is a check, and the exit code says it."""

from __future__ import annotations

import json
import sys

import pytest

from bridge import doctor
from bridge.checks import Check
from bridge.cli import main


@pytest.fixture
def ask(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "engine", lambda: Check("engine", None, "not asked here"))

    def call(where):
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.chdir(where)
            patch.setattr(sys, "argv", ["kakeya", "doctor", "--json"])
            with pytest.raises(SystemExit) as ended:
                main()
        said = json.loads(capsys.readouterr().out)
        return int(ended.value.code or 0), said["ready"], {check["name"]: check for check in said["checks"]}

    return call


def test_a_clone_with_everything_is_ready(ask, clone):
    code, ready, checks = ask(clone)
    assert (code, ready) == (0, True)
    assert [name for name, check in checks.items() if check["ok"] is False] == []


def test_without_a_commit_nothing_can_be_asked(ask, bus, git, tmp_path):
    git(tmp_path, "init", "--quiet", "new")
    git(tmp_path / "new", "remote", "add", "origin", str(bus))
    code, ready, checks = ask(tmp_path / "new")
    assert (code, ready) == (1, False)
    assert checks["commit"]["ok"] is False
    assert "first commit" in checks["commit"]["fix"]
    assert checks["remote"]["ok"] is True
    assert checks["push"]["ok"] is True


def test_without_a_remote_the_checks_go_on(ask, clone, git):
    git(clone, "remote", "remove", "origin")
    code, ready, checks = ask(clone)
    assert (code, ready) == (1, False)
    assert checks["remote"]["ok"] is False
    assert checks["remote"]["fix"] == "Add one with: git remote add origin URL"
    assert checks["commit"]["ok"] is True
    assert {"git", "presets", "namespace", "engine"} <= checks.keys()
    assert "push" not in checks


def test_without_a_repository_that_is_the_answer(ask, tmp_path):
    code, ready, checks = ask(tmp_path)
    assert (code, ready) == (1, False)
    assert checks["repository"]["ok"] is False


def test_a_remote_that_is_away_is_one_failed_check(ask, clone, git):
    git(clone, "remote", "set-url", "origin", "/nowhere.git")
    code, _, checks = ask(clone)
    assert code == 1
    assert checks["remote"]["ok"] is False
    assert "does not appear to be a git repository" in checks["remote"]["message"]
