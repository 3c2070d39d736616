"""A request is built and pushed without touching anything that the user looks at."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.bus import wire
from bridge.client import Client
from bridge.errors import UsageError
from bridge.manifest import parse_manifest

Place = Callable[[], Path]


def state_of(repository: Path, git) -> dict[str, str]:
    """Everything about a repository that a user would notice a change of."""
    index = repository / git(repository, "rev-parse", "--git-path", "index")
    bare = git(repository, "rev-parse", "--is-bare-repository") == "true"
    return {
        "status": "" if bare else git(repository, "status", "--porcelain=v2", "--branch", "--untracked-files=all"),
        "refs": git(repository, "for-each-ref", "refs/heads", "refs/tags", "refs/stash", "refs/notes"),
        "HEAD": git(repository, "rev-parse", "--symbolic-full-name", "HEAD") + git(repository, "rev-parse", "HEAD"),
        "index": hashlib.sha256(index.read_bytes()).hexdigest() if index.exists() else "",
        "config": git(repository, "config", "--local", "--list"),
        "files": "" if bare else str(sorted(path for path in repository.rglob("*") if ".git" not in path.parts)),
        "worktrees": git(repository, "worktree", "list"),
    }  # fmt: skip


@pytest.fixture
def places(bus, clone, git, tmp_path) -> dict[str, Place]:  # noqa: C901 - one function a kind
    """The kinds of repository that people stand in when they ask."""

    def clean() -> Path:
        return clone

    def dirty() -> Path:
        (clone / "staged.txt").write_text("staged")
        git(clone, "add", "staged.txt")
        (clone / "readme.txt").write_text("changed, not staged")
        (clone / "untracked.txt").write_text("untracked")
        git(clone, "stash", "push", "--quiet", "--include-untracked")
        git(clone, "stash", "apply", "--quiet", "--index")
        return clone

    def detached() -> Path:
        git(clone, "switch", "--quiet", "--detach")
        return clone

    def shallow() -> Path:
        git(clone, "commit", "--quiet", "--allow-empty", "-m", "Second")
        git(clone, "push", "--quiet", "origin", "main")
        git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{bus}", "shallow")
        return tmp_path / "shallow"

    def bare() -> Path:
        git(tmp_path, "clone", "--quiet", "--bare", str(bus), "bare.git")
        return tmp_path / "bare.git"

    def worktree() -> Path:
        git(clone, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
        return tmp_path / "side"

    def submodule() -> Path:
        git(tmp_path, "init", "--quiet", "outer")
        git(tmp_path / "outer", "submodule", "--quiet", "add", str(bus), "inner")
        return tmp_path / "outer" / "inner"

    def partial() -> Path:
        git(bus, "config", "uploadpack.allowFilter", "true")
        git(tmp_path, "clone", "--quiet", "--filter=blob:none", f"file://{bus}", "partial")
        return tmp_path / "partial"

    def conflicted() -> Path:
        git(clone, "switch", "--quiet", "-c", "other")
        (clone / "readme.txt").write_text("theirs\n")
        git(clone, "commit", "--quiet", "-am", "Theirs")
        git(clone, "switch", "--quiet", "main")
        (clone / "readme.txt").write_text("ours\n")
        git(clone, "commit", "--quiet", "-am", "Ours")
        with pytest.raises(AssertionError, match="git merge other"):
            git(clone, "merge", "other")
        return clone

    def subfolder() -> Path:
        return clone / "tests"

    kinds = (clean, dirty, detached, shallow, bare, worktree, submodule, partial, conflicted, subfolder)
    return {kind.__name__: kind for kind in kinds}


KINDS = [
    "clean", "dirty", "detached", "shallow", "bare", "worktree", "submodule", "partial", "conflicted", "subfolder",
]  # fmt: skip


def test_every_kind_of_place_is_tried(places):
    assert list(places) == KINDS


@pytest.mark.rows(4)
@pytest.mark.parametrize("kind", KINDS)
def test_a_request_is_sent_and_nothing_here_has_changed(places, kind, bus, git, files_of):
    here = places[kind]()
    head = git(here, "rev-parse", "HEAD")
    before = state_of(here, git)

    run = Client(here).run("noop")

    assert state_of(here, git) == before
    tip = git(bus, "rev-parse", f"refs/heads/{run.branch}")
    assert git(bus, "rev-parse", f"{tip}^") == head
    sent = files_of(bus, tip)
    request = parse_manifest(sent.pop(wire.REQUEST))
    assert request.workload == head
    assert sent == files_of(bus, head)


@pytest.mark.parametrize("kind", ["dirty", "worktree", "subfolder", "conflicted"])
def test_a_snapshot_holds_the_working_tree_and_changes_nothing_here(places, kind, bus, git, files_of):
    here = places[kind]()
    top = Path(git(here, "rev-parse", "--show-toplevel"))
    (top / "added.txt").write_text("new here")
    git(top, "add", "added.txt")
    for name in (".env", "id_rsa", "notes/untracked.txt"):
        (top / name).parent.mkdir(exist_ok=True)
        (top / name).write_text("a password")
    (top / "readme.txt").write_text("as it is now")
    (top / ".gitignore").write_text("*.secret\n")
    (top / "token.secret").write_text("hidden")
    before = state_of(here, git)

    run = Client(here).run("noop", snapshot=True)

    assert state_of(here, git) == before
    sent = files_of(bus, f"refs/heads/{run.branch}")
    assert sent["added.txt"] == "new here"
    assert "a password" not in sent.values()
    assert sent["readme.txt"] == "as it is now"
    assert "token.secret" not in sent
    assert git(bus, "rev-parse", f"refs/heads/{run.branch}^^") == git(here, "rev-parse", "HEAD")


def test_a_snapshot_holds_a_file_that_changed_right_after_it_was_committed(clone, bus, git, files_of):
    # Of the same size, and in the second in which the index was written: only the index's own time shows the change.
    git(clone, "config", "core.checkStat", "minimal")
    git(clone, "config", "core.trustctime", "false")
    path, second = clone / "readme.txt", (1_600_000_000, 1_600_000_000)
    os.utime(path, second)
    git(clone, "update-index", "--refresh")
    path.write_text(path.read_text().swapcase())
    for changed in (path, clone / ".git/index"):
        os.utime(changed, second)

    run = Client(clone).run("noop", snapshot=True)

    assert files_of(bus, f"refs/heads/{run.branch}")["readme.txt"] == path.read_text().strip()


def test_a_snapshot_of_a_clean_tree_is_the_commit_itself(clone, bus, git):
    run = Client(clone).run("noop", snapshot=True)
    assert git(bus, "rev-parse", f"refs/heads/{run.branch}^") == git(clone, "rev-parse", "HEAD")


def test_a_snapshot_holds_what_was_deleted_as_deleted(clone, bus, git, files_of):
    (clone / "readme.txt").unlink()
    run = Client(clone).run("noop", snapshot=True)
    assert "readme.txt" not in files_of(bus, f"refs/heads/{run.branch}")


def test_a_snapshot_before_the_first_commit_can_be_sent(tmp_path, bus, git, files_of):
    git(tmp_path, "init", "--quiet", "young")
    git(tmp_path / "young", "remote", "add", "origin", str(bus))
    (tmp_path / "young" / "a.txt").write_text("a")
    git(tmp_path / "young", "add", "a.txt")
    run = Client(tmp_path / "young").run("noop", snapshot=True)
    assert files_of(bus, f"refs/heads/{run.branch}")["a.txt"] == "a"


def test_a_bare_repository_has_nothing_to_snapshot(places):
    with pytest.raises(UsageError, match="no working tree"):
        Client(places["bare"]()).run("noop", snapshot=True)


def test_a_branch_without_a_commit_is_told_clearly(tmp_path, bus, git):
    git(tmp_path, "init", "--quiet", "young")
    git(tmp_path / "young", "remote", "add", "origin", str(bus))
    with pytest.raises(UsageError, match="'HEAD' is not a commit") as caught:
        Client(tmp_path / "young").run("noop")
    assert caught.value.fix == "Make a first commit."


@pytest.mark.parametrize("ref", ["nowhere", "--all", "-x", "main..main", ""])
def test_a_ref_that_names_no_commit_is_told_and_nothing_is_sent(client, bus, git, ref):
    with pytest.raises(UsageError, match="is not a commit in this repository"):
        client.run("noop", ref=ref)
    assert git(bus, "for-each-ref", "refs/heads/mac-bridge") == ""


def test_another_ref_than_head_is_sent_without_being_checked_out(clone, client, bus, git):
    first = git(clone, "rev-parse", "HEAD")
    git(clone, "tag", "-a", "-m", "first", "v1")
    git(clone, "commit", "--quiet", "--allow-empty", "-m", "Second")
    run = client.run("noop", ref="v1")
    assert git(bus, "rev-parse", f"refs/heads/{run.branch}^") == first
    assert git(bus, "tag") == ""


def test_files_of_an_earlier_run_do_not_ride_along(clone, client, bus, git, files_of):
    (clone / ".mac-bridge" / "logs").mkdir(parents=True)
    for name in ("request.json", "result.json", "state.json", "cancel.json", "logs/noop-0.log"):
        (clone / ".mac-bridge" / name).write_text("stale")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "-m", "Merge an answer by mistake")
    run = client.run("noop")
    sent = files_of(bus, f"refs/heads/{run.branch}")
    assert [path for path in sent if path.startswith(".mac-bridge")] == [wire.REQUEST]
    assert run.status().state == "requested"


HOOKS = (
    "pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-push", "post-checkout", "post-index-change",
    "reference-transaction", "pre-auto-gc", "post-rewrite", "fsmonitor-watchman", "push-to-checkout",
)  # fmt: skip


@pytest.mark.parametrize("where", ["hooks", "core.hooksPath"])
def test_no_hook_of_the_users_repository_runs(clone, tmp_path, git, where):
    folder = clone / ".git" / "hooks"
    if where == "core.hooksPath":
        folder = tmp_path / "hooks"
        git(clone, "config", "core.hooksPath", str(folder))
    folder.mkdir(exist_ok=True)
    for name in HOOKS:
        (folder / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/ran\nexit 1\n")
        (folder / name).chmod(0o755)
    run = Client(clone).run("noop", snapshot=True)
    run.status()
    run.cancel()
    assert not (tmp_path / "ran").exists()


@pytest.mark.rows(2)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GIT_DIR", "/nowhere/.git"),
        ("GIT_WORK_TREE", "/nowhere"),
        ("GIT_INDEX_FILE", "/nowhere/index"),
        ("GIT_OBJECT_DIRECTORY", "/nowhere/objects"),
        ("GIT_NAMESPACE", "elsewhere"),
        ("GIT_PREFIX", "tests/"),
        ("GIT_CONFIG_PARAMETERS", "'core.bare=true'"),
        ("GIT_LITERAL_PATHSPECS", "1"),
    ],
)
def test_variables_of_another_git_call_do_not_mislead(clone, bus, git, monkeypatch, name, value):
    before = state_of(clone, git)
    monkeypatch.setenv(name, value)
    run = Client(clone).run("noop", snapshot=True)
    monkeypatch.delenv(name)
    assert git(bus, "rev-parse", f"refs/heads/{run.branch}^") == git(clone, "rev-parse", "HEAD")
    assert state_of(clone, git) == before


# None changes what another does.
SETTINGS = {
    "commit.gpgSign": "true",
    "gpg.program": "/bin/false",
    "push.gpgSign": "if-asked",
    "push.default": "nothing",
    "push.recurseSubmodules": "check",
    "core.autocrlf": "true",
    "core.quotePath": "true",
    "core.logAllRefUpdates": "always",
    "status.short": "true",
    "color.ui": "always",
    "log.showSignature": "true",
    "i18n.commitEncoding": "latin1",
    "transfer.fsckObjects": "true",
    "user.useConfigOnly": "true",
    "tag.gpgSign": "true",
    "core.fsmonitor": "/bin/false",
    "remote.origin.tagOpt": "--tags",
    "remote.pushDefault": "nowhere",
}


def test_the_users_settings_do_no_harm(clone, bus, git):
    for key, value in SETTINGS.items():
        git(clone, "config", key, value)
    run = Client(clone).run("noop")
    assert run.status().state == "requested"
    assert git(bus, "rev-parse", f"refs/heads/{run.branch}^") == git(bus, "rev-parse", "main")


def test_a_user_without_a_name_can_ask(clone, client, bus, git, monkeypatch):
    (Path.home() / ".gitconfig").unlink()
    monkeypatch.setenv("USER", "somebody")
    run = client.run("noop")
    assert git(bus, "show", "-s", "--format=%an %ae", run.branch) == "somebody somebody@localhost"
    manifest = json.loads(git(bus, "show", f"{run.branch}:{wire.REQUEST}"))
    assert manifest["requested_by"] == "somebody@localhost"


def test_who_asks_can_be_said_in_the_environment(client, bus, git, monkeypatch):
    monkeypatch.setenv("GIT_AUTHOR_NAME", "An Agent")
    monkeypatch.setenv("GIT_AUTHOR_EMAIL", "agent@example.invalid")
    run = client.run("noop")
    assert git(bus, "show", "-s", "--format=%an %ae", run.branch) == "An Agent agent@example.invalid"


@pytest.mark.parametrize(
    ("branch", "beginning", "end"),
    [
        ("main", "mac-bridge/noop-", ""),
        ("AgentMemory/foo-b876", "AgentMemory/mac-bridge-noop-", "-b876"),
        ("claude/work", "claude/mac-bridge-noop-", ""),
        ("copilot/work", "copilot/mac-bridge-noop-", ""),
    ],
)
def test_requests_stay_in_the_agents_namespace(clone, bus, git, branch, beginning, end):
    git(clone, "switch", "--quiet", "-C", branch)
    run = Client(clone).run("noop")
    assert run.branch.startswith(beginning)
    assert run.branch.endswith(end)
    assert git(bus, "rev-parse", f"refs/heads/{run.branch}")
    assert [status.branch for status in Client(clone).list()] == [run.branch]


def test_the_environment_can_say_where_requests_go(clone, monkeypatch):
    monkeypatch.setenv("KAKEYA_BRANCH_PREFIX", "team/mac-bridge-")
    monkeypatch.setenv("KAKEYA_BRANCH_SUFFIX", "-b876")
    client = Client(clone)
    run = client.run("noop")
    assert run.branch.startswith("team/mac-bridge-noop-")
    assert run.branch.endswith("-b876")
    assert [status.branch for status in client.list()] == [run.branch]


def test_labels_and_who_asks_are_in_the_manifest(client, bus, git):
    run = client.run("noop", labels=["gpu", "m4"], requested_by="An Agent")
    request = parse_manifest(git(bus, "show", f"{run.branch}:{wire.REQUEST}"))
    assert (request.labels, request.requested_by) == (["gpu", "m4"], "An Agent")


@pytest.mark.parametrize(
    "options", [{"labels": ["a b"]}, {"requested_by": "\x1b[2J"}, {"requested_by": "x" * 300}], ids=str
)
def test_what_no_runner_would_read_is_not_sent(client, bus, git, options):
    with pytest.raises(UsageError):
        client.run("noop", **options)
    assert git(bus, "for-each-ref", "refs/heads/mac-bridge") == ""


def test_a_tag_named_like_the_branch_moves_no_request_to_another_namespace(client, clone, git):
    git(clone, "switch", "--quiet", "--create", "claude/work")
    git(clone, "tag", "claude/work")
    assert client.namespace.prefix == "claude/mac-bridge-"
    git(clone, "switch", "--quiet", "--detach")
    assert client.namespace.prefix == "mac-bridge/"
