"""What GitPython says of a user's repository is what git says, and nothing that lies in the repository is started."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bridge.errors import InfrastructureError
from bridge.requests.request_commit import current_branch, identity
from bridge.system import gitpython
from bridge.system.git import Git


def test_a_clone_is_described_as_git_does(clone):
    about = gitpython.describe(clone / "tests")

    mine = Git.of_user(clone)
    who = identity(mine)
    assert (about.branch, about.name, about.email) == (current_branch(mine), who.name, who.email)
    assert about == gitpython.RepositoryInfo("main", who.name, who.email, ("origin",), False, False, 1)


@pytest.mark.parametrize("name", ["readme.txt", "new.txt"])
def test_changed_and_untracked_files_are_seen(clone, name):
    (clone / name).write_text("something else\n")
    assert gitpython.describe(clone).changed


def test_what_git_ignores_is_no_change(clone):
    (clone / ".git" / "info" / "exclude").write_text("*.log\n")
    (clone / "a.log").write_text("x\n")
    assert not gitpython.describe(clone).changed


def test_linked_worktrees_detached_heads_and_bare_repositories(clone, bus, git, tmp_path):
    git(clone, "worktree", "add", "--quiet", "--detach", str(tmp_path / "$HOME"))
    (tmp_path / "$HOME" / "readme.txt").write_text("changed here alone\n")

    linked, main = gitpython.describe(tmp_path / "$HOME"), gitpython.describe(clone)

    assert (linked.branch, linked.worktrees, linked.changed) == (None, 2, True)
    assert (main.branch, main.worktrees, main.changed) == ("main", 2, False)
    assert gitpython.describe(bus).bare
    assert not gitpython.describe(bus).changed


def test_a_repository_without_commits_is_described(git, tmp_path):
    git(tmp_path, "init", "--quiet", "new")
    about = gitpython.describe(tmp_path / "new")
    assert (about.branch, about.remotes, about.changed) == ("main", (), False)


def test_variables_of_a_hook_do_not_lead_elsewhere(clone, bus, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(bus))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))

    about = gitpython.describe(clone)

    assert (about.bare, about.changed, about.worktrees) == (False, False, 1)


@pytest.mark.parametrize("name", ["GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"])
def test_variables_that_it_would_follow_are_refused(clone, bus, tmp_path, monkeypatch, name):
    monkeypatch.setenv(name, str(bus))
    with pytest.raises(InfrastructureError, match=f"{name} is set"):
        gitpython.describe(clone)


def test_nothing_that_the_configuration_names_is_started(clone, git, tmp_path):
    """But for filters, which git starts for `add` and `status` alike."""
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    hooks = clone / ".git" / "hooks"
    for name in ("post-index-change", "reference-transaction", "fsmonitor-watchman"):
        (hooks / name).write_bytes(program.read_bytes())
        (hooks / name).chmod(0o755)
    for setting in ("core.fsmonitor", "core.sshCommand", "diff.external", "core.pager", "core.editor"):
        git(clone, "config", setting, str(program))
    git(clone, "config", "alias.diff", f"!{program}")
    (clone / "readme.txt").write_text("something else\n")

    assert gitpython.describe(clone).changed
    assert not ran.exists()


def test_what_it_cannot_read_is_told(clone):
    (clone / ".git" / "config").write_bytes(b"[core]\n\trepositoryformatversion = 0\n[remote \xff\n")
    with pytest.raises(InfrastructureError, match="GitPython cannot read this repository"):
        gitpython.describe(clone)


def test_neither_help_nor_a_request_imports_it(clone):
    code = (
        "import sys\nfrom bridge.client import Client\nfrom bridge.cli import run\nClient(sys.argv[1]).run('noop')\n"
        "print('git' in sys.modules)"
    )
    argv = [sys.executable, "-P", "-c", code, str(clone)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
