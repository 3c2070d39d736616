"""What holds for each door to git: no object stands for another one, and a server that is silent is given up."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from bridge.common import limits
from bridge.errors import GitError
from bridge.system import gitpython
from bridge.system.git import Git
from engine import commit as engine_commit
from release import hatch_build
from runner.bus.store import open_store
from runner.policy import load_policy

ROOT = Path(__file__).parents[3]


@pytest.fixture
def replaced(clone, git):
    """A clean clone, of whose last commit another one with other files stands in the place."""
    for name in ("__init__.py", "release/hatch_build.py"):
        (clone / name).parent.mkdir(exist_ok=True)
        (clone / name).write_text("")
    git(clone, "add", "-A")
    git(clone, "commit", "--quiet", "-m", "the real one")
    real = git(clone, "rev-parse", "HEAD")
    empty = git(clone, "hash-object", "-t", "tree", "-w", "--stdin", stdin="")
    other = git(clone, "commit-tree", empty, "-m", "another one")
    git(clone, "replace", real, other)
    assert "another one" in git(clone, "cat-file", "commit", "HEAD")
    return clone, real


DOORS = {
    "of_user": lambda clone: "the real one" in Git.of_user(clone).text("cat-file", "commit", "HEAD"),
    "isolated": lambda clone: (
        "the real one" in Git.isolated(clone / ".git").text("cat-file", "commit", "HEAD")
    ),
    "gitpython": lambda clone: not gitpython.describe(clone).changed,
    "engine": lambda clone: engine_commit.of(clone) == (Git.of_user(clone).text("rev-parse", "HEAD"), False),
    "build": lambda clone: hatch_build.commit_of(clone) == Git.of_user(clone).text("rev-parse", "HEAD"),
}


@pytest.mark.parametrize("door", DOORS)
def test_no_object_stands_for_another_one(replaced, door):
    clone, _ = replaced
    assert DOORS[door](clone)


def test_these_are_all_doors():
    """A program that is called git stands in the modules above alone."""
    files = [*ROOT.glob("bridge/**/*.py"), *ROOT.glob("runner/**/*.py"), *ROOT.glob("engine/**/*.py")]
    calling = {
        str(file.relative_to(ROOT))
        for file in [*files, ROOT / "release" / "hatch_build.py"]
        if any(sign in file.read_text(encoding="utf-8") for sign in ('("git", ', '["git", ', '"git", "-'))
    }

    # These print a command for people, name a check, or look for git on the PATH or among the processes.
    others = {
        "bridge/bus/remote_errors.py", "bridge/doctor.py", "runner/bus/bus.py", "runner/bus/stale_files.py",
        "runner/doctor/readiness.py", "runner/service/settings.py",
    }  # fmt: skip
    assert calling - others == {"bridge/system/git.py", "bridge/common/version.py", "release/hatch_build.py"}


@pytest.fixture
def silent():
    """The address of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/o/r.git"


@pytest.mark.long
@pytest.mark.parametrize("side", ["client", "runner"])
def test_a_server_that_is_silent_is_given_up(silent, side, clone, runners, monkeypatch):
    monkeypatch.setattr(limits, "SILENCE_S", 2.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    if side == "client":
        door = Git.of_user(clone)
    else:
        policy = load_policy(runners.policy(bus={"url": silent}))
        policy.state.mkdir(parents=True, exist_ok=True)
        door = open_store(policy.bus, policy.state / "store.git", None)
    began = time.monotonic()

    with pytest.raises(GitError) as caught:
        door("ls-remote", silent, timeout=60)

    assert 1 < time.monotonic() - began < 30
    assert "too slow" in str(caught.value).lower() or "timed out" in str(caught.value).lower()
