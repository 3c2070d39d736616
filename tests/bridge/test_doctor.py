"""`kakeya doctor` in repositories that lack something: each thing is a check, and the exit code says it."""

from __future__ import annotations

import json
import sys

import pytest

from bridge import doctor
from bridge.checklist import Check
from bridge.cli import main
from bridge.client import Client
from bridge.errors import InfrastructureError, UsageError
from bridge.system import gitpython
from runner.state import signing_key


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


def test_a_branch_named_like_the_prefix_is_told_with_its_remedy(ask, clone, bus, git):
    """A dry run of a push does not notice it."""
    git(bus, "branch", "mac-bridge", "main")

    code, ready, checks = ask(clone)

    assert (code, ready) == (1, False)
    assert "a branch named 'mac-bridge' stands in the way" in checks["push"]["message"]
    assert "Rename the branch 'mac-bridge' on the remote" in checks["push"]["fix"]
    assert "--prefix" in checks["push"]["fix"]


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


def test_the_repository_is_described_and_changes_are_no_fault(ask, clone):
    _, _, checks = ask(clone)
    assert checks["repository"]["message"] == (
        "branch main; you are A Tester <tester@example.invalid>; remotes: origin"
    )
    assert "changes" not in checks

    (clone / "new.txt").write_text("x\n")
    code, _, checks = ask(clone)
    assert (code, checks["changes"]["ok"]) == (0, None)
    assert "--snapshot" in checks["changes"]["fix"]


def test_a_repository_that_gitpython_cannot_read_is_no_fault(ask, clone, monkeypatch):
    def fail(directory):
        raise InfrastructureError("GitPython cannot read this repository: no", code="unreadable")

    monkeypatch.setattr(gitpython, "describe", fail)
    code, _, checks = ask(clone)
    assert (code, checks["repository"]["ok"]) == (0, None)


def test_a_user_whom_git_does_not_know_is_told(ask, clone, git):
    git(clone, "config", "user.name", "")
    _, _, checks = ask(clone)
    assert "git has no user.name or no user.email" in checks["repository"]["message"]


def test_a_runner_that_signs_with_another_key_is_named(ask, clone, keyed, monkeypatch):
    monkeypatch.setenv("KAKEYA_PUBLIC_KEY", str(keyed.key("two")))
    keyed.key("one")
    with keyed.context("one") as context:
        context.announcer.begin()
        context.announcer.announce_if_due()
        _, ready, checks = ask(clone)

    assert (ready, checks["runner"]["ok"]) == (True, None)
    assert "the pinned key did not sign" in checks["runner"]["message"]
    assert "one" in checks["runner"]["message"]


def test_the_key_that_answers_are_judged_by_is_told_and_a_broken_one_is_a_fault(
    ask, clone, tmp_path, monkeypatch
):
    code, _, checks = ask(clone)
    assert (code, checks["key"]["ok"]) == (0, None)
    assert "git config kakeya.publicKey" in checks["key"]["fix"]

    signing_key.make_key(tmp_path / "state")
    pinned = tmp_path / "state" / signing_key.PUBLIC
    monkeypatch.setenv("KAKEYA_PUBLIC_KEY", str(pinned))
    code, _, checks = ask(clone)
    assert (code, checks["key"]["ok"]) == (0, True)
    assert "KAKEYA_PUBLIC_KEY" in checks["key"]["message"]

    pinned.chmod(0o644)
    pinned.write_text("no key")
    code, ready, checks = ask(clone)
    assert (code, ready, checks["key"]["ok"]) == (1, False, False)
    with pytest.raises(UsageError, match="holds no public key"):
        Client(clone).run("noop")
    assert checks["push"]["ok"] is True
