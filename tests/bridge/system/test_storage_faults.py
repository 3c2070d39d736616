"""A clone that git cannot write to, and a folder that is gone: told as what they are, whatever the command."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bridge.bus.remote_errors import explain
from bridge.client import Client
from bridge.doctor import examine
from bridge.errors import GitError, InfrastructureError
from bridge.system import storage_faults
from bridge.system.git import Git

DATABASE = "error: insufficient permission for adding an object to repository database .git/objects\n"
WORDS = {
    f"{DATABASE}fatal: failed to write object": "chmod",
    "fatal: Unable to create '/c/.git/refs/kakeya-sent/x.lock': Permission denied": "chmod",
    "fatal: cannot lock ref 'refs/x': Unable to create '/c/refs/x.lock': Read-only file system": "file system",
    "error: unable to create temporary file: No space left on device": "Free some space",
    "fatal: write error: Disk quota exceeded": "Free some space",
    "error: could not create directory: Operation not permitted": "chmod",
    "fatal: not a git repository": None,
    "remote: error: insufficient permission for adding an object to repository database ./objects": None,
    "fatal: bad object Permission denied": None,
}


@pytest.mark.parametrize("said", WORDS)
def test_what_git_cannot_write_is_recognized(said, tmp_path):
    found = storage_faults.find(said, tmp_path)

    assert (found is None) is (WORDS[said] is None)
    if found:
        assert str(tmp_path) in found[0]
        assert WORDS[said] in found[1]


def test_the_owner_is_named(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    (tmp_path / "objects").mkdir()
    os.chown(tmp_path / "objects", 12345, 12345)

    assert "user 12345" in storage_faults.find(DATABASE, tmp_path)[1]


@pytest.fixture
def unwritable(clone, tmp_path, monkeypatch):
    """Git that cannot add an object to the clone, as root can."""
    real = subprocess.run(
        ["sh", "-c", "command -v git"], capture_output=True, text=True, check=True
    ).stdout.strip()
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    fail = f"printf '%s' {DATABASE.strip()!r} >&2; exit 128"
    program.write_text(
        f'#!/bin/sh\nfor word; do case "$word" in unpack-objects|hash-object|mktree) {fail};; esac; done\n'
        f'exec {real} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return clone


def test_a_request_from_a_clone_that_cannot_be_written_says_so(unwritable):
    with pytest.raises(InfrastructureError, match="git cannot write to") as failed:
        Client(unwritable).run("noop")

    assert failed.value.code == "unwritable"
    assert str(unwritable / ".git") in failed.value.fix


def test_the_doctor_goes_on(unwritable, monkeypatch):
    monkeypatch.setattr("bridge.doctor.engine", lambda: next(examine("/nowhere", "origin")))
    checks = {check.name: check for check in examine(unwritable, "origin")}

    assert checks["push"].ok is False
    assert "git cannot write to" in checks["push"].message
    assert "runner" in checks


def test_a_fetch_into_it_is_no_fault_of_the_remote(client):
    failed = GitError(("git", "fetch"), 1, b"", DATABASE.encode())
    failed.code = "unwritable"

    assert explain(failed, client.git, "origin") is failed


COMMANDS = [
    *(
        ("bridge", *words)
        for words in (("list",), ("run", "noop"), ("status",), ("doctor",), ("verify",), ("web",))
    ),
    *(("runner", *words) for words in (("check",), ("status",), ("serve",))),
]


@pytest.mark.rows(3)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_deleted_folder_is_no_bug(tmp_path, command):
    gone = tmp_path / "gone"
    gone.mkdir()
    start = (
        "import os, sys, runpy; os.rmdir(os.getcwd()); runpy.run_module(sys.argv.pop(1), run_name='__main__')"
    )
    env = {**os.environ, "KAKEYA_RUNNER_POLICY": str(tmp_path / "none.yaml")}
    argv = [sys.executable, "-P", "-c", start, *command]
    done = subprocess.run(argv, cwd=gone, env=env, capture_output=True, text=True, check=False, timeout=120)

    assert done.returncode != 70, done.stderr
    assert "bug" not in done.stderr
    if command[0] == "bridge":
        assert "no longer exists" in done.stdout + done.stderr


def test_git_of_a_clone_without_a_fault_is_as_before(clone):
    with pytest.raises(GitError) as failed:
        Git.of_user(clone)("cat-file", "commit", "nothing")

    assert failed.value.code == "git"
    assert failed.value.fix is None
