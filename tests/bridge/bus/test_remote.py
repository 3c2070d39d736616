"""The remote as a bus, over a local folder and over smart HTTP: what is pushed, fetched, and said when it fails."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from bridge.bus import objects, wire
from bridge.bus.remote import PRIVATE, Remote
from bridge.bus.remote_errors import explain
from bridge.client import Client
from bridge.common import limits
from bridge.errors import GitError, InfrastructureError, RefusedError, UsageError
from bridge.system.git import Git
from tests.trees import write_tree

BRANCH = "mac-bridge/noop-1700000000-abc123"


@pytest.fixture(params=["file", "http"])
def remote(request, bus, clone, git) -> Remote:
    """The same bus over two transports."""
    url = f"file://{bus}" if request.param == "file" else request.getfixturevalue("http_bus").url
    git(clone, "remote", "set-url", "origin", url)
    return Remote.of(Git.of_user(clone), "origin")


def tip(repository: Path, git, branch: str = BRANCH) -> str | None:
    return git(repository, "for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}") or None


def another(remote: Remote, text: bytes = b"1") -> str:
    """Make a commit that is on no branch, on top of main."""
    main = remote.git.text("rev-parse", "refs/remotes/origin/main")
    tree = objects.overlay(remote.git, f"{main}^{{tree}}", {"another": text})
    return objects.commit(remote.git, tree, [main], "Another\n", objects.Identity("x", "x@y"))


def hook(bus: Path, name: str, script: str) -> None:
    path = bus / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_commit_is_pushed_and_fetched_into_private_refs_only(remote, bus, git):
    commit = another(remote)
    assert remote.push(BRANCH, commit, expect=None)
    assert tip(bus, git) == commit
    before = remote.git.text("for-each-ref", "refs/heads", "refs/tags", "refs/remotes")
    assert remote.fetch("mac-bridge/*") == {BRANCH: commit}
    assert remote.git.text("for-each-ref", "refs/heads", "refs/tags", "refs/remotes") == before
    assert not (remote.git.directory / ".git" / "FETCH_HEAD").exists()


def test_a_branch_that_is_gone_on_the_remote_goes_here_too(remote, bus, git):
    remote.push(BRANCH, another(remote), expect=None)
    git(bus, "update-ref", "-d", f"refs/heads/{BRANCH}")
    assert remote.fetch("mac-bridge/*") == {}
    assert remote.git.text("for-each-ref", PRIVATE) == ""


def test_one_branch_that_is_gone_on_the_remote_is_no_error(remote, bus, git):
    remote.push(BRANCH, another(remote), expect=None)
    git(bus, "update-ref", "-d", f"refs/heads/{BRANCH}")
    assert remote.fetch(BRANCH) == {}
    assert remote.fetched_branches(BRANCH) == {}


def test_a_branch_that_exists_is_not_overwritten(remote, bus, git):
    first = another(remote)
    remote.push(BRANCH, first, expect=None)
    assert not remote.push(BRANCH, another(remote, b"2"), expect=None)
    assert tip(bus, git) == first


def test_a_push_upon_a_tip_that_has_moved_is_stale(remote, bus, git):
    first, second = another(remote), another(remote, b"2")
    remote.push(BRANCH, first, expect=None)
    git(bus, "update-ref", f"refs/heads/{BRANCH}", "refs/heads/main")
    assert not remote.push(BRANCH, second, expect=first)
    assert tip(bus, git) == git(bus, "rev-parse", "main")


def test_a_push_that_loses_the_race_on_the_server_is_stale(remote, bus, git):
    first, second = another(remote), another(remote, b"2")
    remote.push(BRANCH, first, expect=None)
    hook(bus, "pre-receive", f"unset GIT_QUARANTINE_PATH; git update-ref refs/heads/{BRANCH} refs/heads/main")
    assert not remote.push(BRANCH, second, expect=first)


def test_a_new_branch_that_another_creates_meanwhile_is_stale(remote, bus, git):
    hook(bus, "pre-receive", f"unset GIT_QUARANTINE_PATH; git update-ref refs/heads/{BRANCH} refs/heads/main")
    assert not remote.push(BRANCH, another(remote), expect=None)


def test_a_branch_is_deleted_where_it_was_left(remote, bus, git):
    commit = another(remote)
    remote.push(BRANCH, commit, expect=None)
    assert not remote.delete(BRANCH, expect=git(bus, "rev-parse", "main"))
    assert remote.delete(BRANCH, expect=commit)
    assert tip(bus, git) is None
    assert remote.fetched_branches("mac-bridge/*") == {}


def test_a_remote_that_declines_is_told_as_a_refusal(remote, bus, git):
    hook(bus, "pre-receive", "echo 'only release managers push here' >&2; exit 1")
    with pytest.raises(RefusedError, match="does not let you push") as caught:
        remote.push(BRANCH, another(remote), expect=None)
    assert (caught.value.code, int(caught.value.exit_code)) == ("no_push_right", 4)
    assert "--prefix" not in caught.value.fix
    assert tip(bus, git) is None


def test_a_remote_that_declines_deletion_is_told_as_a_refusal(remote, bus, git):
    commit = another(remote)
    remote.push(BRANCH, commit, expect=None)
    git(bus, "config", "receive.denyDeletes", "true")
    with pytest.raises(RefusedError):
        remote.delete(BRANCH, expect=commit)
    assert tip(bus, git) == commit


@pytest.mark.parametrize("blocking", ["mac-bridge", "Team/mac-bridge"], ids=["one level", "two levels"])
def test_a_branch_that_stands_in_the_way_is_named(remote, bus, git, blocking):
    git(bus, "update-ref", f"refs/heads/{blocking}", "refs/heads/main")
    with pytest.raises(RefusedError, match=f"a branch named '{blocking}' stands in the way") as caught:
        remote.push(f"{blocking}/deep/noop-1700000000-abc123", another(remote), expect=None)
    assert caught.value.code == "squatted"
    with pytest.raises(RefusedError, match=f"a branch named '{blocking}' stands in the way"):
        remote.try_push(f"{blocking}/deep/noop-1700000000-abc123", another(remote))


@pytest.mark.rows(8)
@pytest.mark.parametrize(
    "words",
    ["directory file conflict", "refname conflict", "reference conflict due to case-insensitive filesystem",
     "failed to update ref", "failed to lock"],
)  # fmt: skip
@pytest.mark.parametrize("blocking", ["Team/mac-bridge", "team", "TEAM/mac-bridge/noop-1700000000-abc123/x"])
def test_a_branch_in_the_way_is_named_whatever_the_server_says(remote, bus, git, words, blocking):
    """Servers whose file system ignores case also refuse names that differ only by it."""
    git(bus, "update-ref", f"refs/heads/{blocking}", "refs/heads/main")
    git(bus, "update-ref", "refs/heads/team-2", "refs/heads/main")
    branch = "team/mac-bridge/noop-1700000000-abc123"
    refusal = f"! [remote rejected] {'1' * 40} -> {branch} ({words})\n"
    failed = GitError(("git", "push"), 1, stderr=refusal.encode())

    error = explain(failed, remote.git, remote.name, branch)

    assert isinstance(error, RefusedError)
    assert f"named {blocking!r} stands in the way" in error.message
    assert f"Rename the branch {blocking!r} on the remote" in error.fix


def test_requests_below_a_branch_of_the_same_name_stand_in_the_way_too(remote, bus, git):
    git(bus, "update-ref", f"refs/heads/{BRANCH}/x", "refs/heads/main")
    with pytest.raises(RefusedError) as caught:
        remote.push(BRANCH, another(remote), expect=None)
    assert caught.value.code == "squatted"


@pytest.mark.rows(2)
@pytest.mark.parametrize(
    "config", ["push.followTags", "push.gpgSign", "remote.origin.prune", "fetch.pruneTags"]
)
def test_the_users_settings_for_tags_and_signatures_change_nothing(remote, bus, git, config):
    git(remote.git.directory, "tag", "-a", "-m", "mine", "mine", "origin/main")
    git(remote.git.directory, "config", config, "true")
    commit = another(remote)
    assert remote.push(BRANCH, commit, expect=None)
    assert remote.fetch("mac-bridge/*") == {BRANCH: commit}
    assert git(bus, "tag") == ""
    assert git(remote.git.directory, "tag") == "mine"


def test_every_branch_under_a_pattern_is_listed_however_deep(remote):
    commit = another(remote)
    deep = "mac-bridge/team/noop-1700000000-abc123"
    remote.push(deep, commit, expect=None)
    remote.push(BRANCH, commit, expect=None)
    assert remote.fetch("mac-bridge/*") == {BRANCH: commit, deep: commit}
    assert remote.fetched_branches("mac-bridge/team/*") == {deep: commit}
    assert remote.fetched_branches("claude/mac-bridge-*") == {}


def test_only_the_prefixes_that_are_wanted_are_asked_for(clone, http_bus, git):
    git(clone, "remote", "set-url", "origin", http_bus.url)
    git(http_bus.root / "bus.git", "update-ref", "refs/heads/other/x", "refs/heads/main")
    os.environ["GIT_TRACE_PACKET"] = "1"  # scrubbed: it is not about transport or trust
    try:
        assert Remote.of(Git.of_user(clone), "origin").fetch("mac-bridge/*") == {}
    finally:
        del os.environ["GIT_TRACE_PACKET"]
    assert http_bus.requests[0][2]["git-protocol"] == "version=2"


def test_a_repository_without_a_remote_says_how_to_add_one(tmp_path, git):
    git(tmp_path, "init", "--quiet", "alone")
    with pytest.raises(UsageError, match="no remote 'origin'") as caught:
        Remote.of(Git.of_user(tmp_path / "alone"), "origin")
    assert caught.value.fix == "Add one with: git remote add origin URL"


def test_an_unknown_remote_is_told_with_those_that_are_known(clone, git):
    git(clone, "remote", "add", "second", "/nowhere")
    with pytest.raises(UsageError, match="no remote 'orgin'") as caught:
        Remote.of(Git.of_user(clone), "orgin")
    always = "or for all commands: git config kakeya.bus NAME"
    assert caught.value.fix == f"Remotes here: origin, second. Choose one with --remote, {always}"


@pytest.mark.parametrize("name", ["--upload-pack=/bin/x", "-u/x", "--receive-pack=a:b"])
def test_a_remote_that_looks_like_an_option_is_refused(clone, name):
    with pytest.raises(UsageError, match="no remote"):
        Remote.of(Git.of_user(clone), name)


def test_a_remote_may_be_named_by_its_address(clone, bus):
    remote = Remote.of(Git.of_user(clone), f"file://{bus}")
    commit = another(remote)
    assert remote.push(BRANCH, commit, expect=None)
    assert remote.fetch("mac-bridge/*") == {BRANCH: commit}
    assert remote.url == f"file://{bus}"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("/nowhere/bus.git", "unreachable"),
        ("file:///nowhere/denied-403/bus.git", "unreachable"),
        ("http://127.0.0.1:1/403/denied.git", "remote_failed"),
    ],
)
def test_a_remote_that_cannot_be_reached_is_worth_a_retry(clone, git, url, code):
    git(clone, "remote", "set-url", "origin", url)
    remote = Remote.of(Git.of_user(clone), "origin")
    with pytest.raises(InfrastructureError) as caught:
        remote.push(BRANCH, another(remote), expect=None)
    assert (caught.value.code, int(caught.value.exit_code)) == (code, 3)
    with pytest.raises(InfrastructureError):
        remote.fetch("mac-bridge/*")
    with pytest.raises(InfrastructureError):
        remote.fetch(BRANCH)


def test_a_server_that_wants_a_token_and_gets_none_is_told_without_a_prompt(clone, http_bus, git):
    http_bus.token = "right"
    git(clone, "remote", "set-url", "origin", http_bus.url)
    with pytest.raises(InfrastructureError) as caught:
        Remote.of(Git.of_user(clone), "origin").fetch("mac-bridge/*")
    assert caught.value.code == "unreachable"


def test_a_wrong_token_is_told_and_never_shown(clone, http_bus, git):
    http_bus.token = "right"
    git(clone, "remote", "set-url", "origin", http_bus.url_with("wrong-secret"))
    with pytest.raises(InfrastructureError) as caught:
        Remote.of(Git.of_user(clone), "origin").fetch("mac-bridge/*")
    assert caught.value.code == "unreachable"
    assert "wrong-secret" not in f"{caught.value.message} {caught.value.fix}"


def test_a_right_token_opens_the_bus(clone, http_bus, git):
    http_bus.token = "right"
    git(clone, "remote", "set-url", "origin", http_bus.url_with("right"))
    remote = Remote.of(Git.of_user(clone), "origin")
    commit = another(remote)
    assert remote.push(BRANCH, commit, expect=None)
    assert remote.fetch("mac-bridge/*") == {BRANCH: commit}


def test_a_large_request_goes_over_http(clone, http_bus, git):
    """More than git's post buffer, so that the body comes in chunks."""
    git(clone, "remote", "set-url", "origin", http_bus.url)
    git(clone, "config", "http.postBuffer", "65536")
    remote = Remote.of(Git.of_user(clone), "origin")
    assert remote.push(BRANCH, another(remote, os.urandom(300_000)), expect=None)
    assert any(headers.get("transfer-encoding") == "chunked" for _, _, headers in http_bus.requests)


def test_trying_a_push_sends_nothing(remote, bus, git):
    remote.try_push(BRANCH, another(remote))
    assert tip(bus, git) is None


def test_trying_a_push_tells_what_a_push_would(clone, git):
    git(clone, "remote", "set-url", "origin", "/nowhere/bus.git")
    remote = Remote.of(Git.of_user(clone), "origin")
    with pytest.raises(InfrastructureError) as caught:
        remote.try_push(BRANCH, another(remote))
    assert caught.value.code == "unreachable"


def test_a_clone_that_lacks_history_which_the_remote_lacks_too_says_so(tmp_path, bus, clone, git):
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{bus}", "shallow")
    git(tmp_path / "shallow", "commit", "--quiet", "--allow-empty", "-m", "More")
    git(tmp_path, "init", "--quiet", "--bare", "empty.git")
    git(tmp_path / "shallow", "remote", "set-url", "origin", f"file://{tmp_path}/empty.git")
    with pytest.raises(UsageError, match="shallow clone") as caught:
        Client(tmp_path / "shallow").run("noop")
    assert caught.value.fix == "Run: git fetch --unshallow"


def test_branches_that_take_too_long_are_left_out_and_the_others_come(remote):
    commits = {f"{BRANCH}{i}": another(remote, b"%d" % i) for i in range(6)}
    for branch, commit in commits.items():
        remote.push(branch, commit, expect=None)
    slow = f"{BRANCH}3"
    calls: list[tuple[int, float]] = []

    class Slow(Git):
        """Git for which fetching one commit takes longer than it is given."""

        def __call__(self, *args, stdin=None, timeout=None, **more):
            if args[0] == "fetch":
                calls.append((stdin.count("\n"), timeout))
                if commits[slow] in stdin:
                    raise GitError(args, None, message="took too long")
            return super().__call__(*args, stdin=stdin, timeout=timeout, **more)

    fetched = replace(remote, git=Slow(remote.git.directory, remote.git.env)).fetch_listed(commits)

    assert fetched == {branch: commit for branch, commit in commits.items() if branch != slow}
    assert calls[0][0] == 6
    assert calls[0][1] <= limits.LISTED_S / 3
    assert all(later[1] <= earlier[1] for earlier, later in pairwise(calls))


def test_once_the_time_is_over_no_fetch_is_tried(remote, monkeypatch):
    commit = another(remote)
    remote.push(BRANCH, commit, expect=None)
    monkeypatch.setattr(limits, "LISTED_S", 0.0)
    assert remote.fetch_listed({BRANCH: commit}) == {}


@pytest.mark.rows(1)
@pytest.mark.parametrize("first", [f"{BRANCH}/noop-1700000001-abc123", BRANCH])
def test_what_is_gone_from_the_remote_keeps_no_other_branch_from_being_fetched_or_pushed(
    remote, bus, git, first
):
    """Git cannot hold a branch beside one below it: somebody pushes one, deletes it, and the other comes."""
    (second,) = {f"{BRANCH}/noop-1700000001-abc123", BRANCH} - {first}
    commit, other = another(remote), another(remote, b"2")

    def swap() -> None:
        remote.git("update-ref", "--stdin", stdin=f"delete {PRIVATE}{second}\n")
        remote.git("update-ref", PRIVATE + first, commit)
        git(bus, "update-ref", "-d", f"refs/heads/{second}")

    swap()
    assert remote.push(second, other, expect=None)
    assert remote.fetched_branches(second) == {second: other}
    swap()
    remote.git("push", "--quiet", "origin", f"{other}:refs/heads/{second}")
    assert remote.fetch_listed(remote.list_branches("mac-bridge/*")) == {second: other}
    remote.git("update-ref", "--stdin", stdin=f"delete {PRIVATE}{second}\n")
    remote.git("update-ref", PRIVATE + first, commit)
    assert remote.fetch(second) == {second: other}


def test_what_the_users_git_refuses_is_not_asked_for_again(remote, bus, list_fetches):
    there = Git.isolated(bus)
    bad = objects.commit(
        there, write_tree(there, {".GIT": {"config": "x"}}), [], "x\n", objects.Identity("x", "x@y")
    )
    there("update-ref", f"refs/heads/{BRANCH}1", bad)
    good = another(remote)
    remote.push(BRANCH, good, expect=None)
    remote.git("config", "transfer.fsckObjects", "true")

    assert remote.fetch_listed(remote.list_branches("mac-bridge/*")) == {BRANCH: good}

    list_fetches.clear()
    assert remote.fetch_listed(remote.list_branches("mac-bridge/*")) == {BRANCH: good}
    assert list_fetches == [{BRANCH: good}]


def test_a_partial_clone_has_all_of_a_request_after_one_fetch(bus, tmp_path, clone, git):
    """Otherwise each object that is read costs a fetch of its own."""
    git(bus, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "--quiet", "--filter=tree:0", f"file://{bus}", "partial")
    run = Client(clone).run("noop")
    partial = Client(tmp_path / "partial")
    settings = (tmp_path / "partial" / ".git" / "config").read_text()

    tips = partial.remote.fetch_listed(partial.remote.list_branches("mac-bridge/*"))

    assert (tmp_path / "partial" / ".git" / "config").read_text() == settings
    git(tmp_path / "partial", "remote", "set-url", "origin", str(tmp_path / "nowhere"))
    manifest = objects.read_blob(partial.git, tips[run.branch], wire.REQUEST, max_bytes=100_000)
    assert manifest is not None


def test_commands_that_fetch_one_branch_at_a_time_do_not_fail_each_other(remote, monkeypatch):
    commit = another(remote)
    remote.push(BRANCH, commit, expect=None)
    remote.git("update-ref", "-d", PRIVATE + BRANCH)
    fetches: list[str] = []

    class Busy(Git):
        """Git whose first fetches find that another process has just written the reference."""

        def __call__(self, *args, **more):
            if args[0] == "fetch":
                fetches.append(args[-1])
                if len(fetches) < 4:
                    said = b"error: cannot lock ref 'refs/kakeya/x': is at 1 but expected 2"
                    raise GitError(args, 1, stderr=said, message="failed")
            return super().__call__(*args, **more)

    monkeypatch.setattr("bridge.bus.remote.PAUSE_S", 0.0)
    busy = replace(remote, git=Busy(remote.git.directory, remote.git.env))

    assert busy.fetch(BRANCH) == {BRANCH: commit}
    assert len(fetches) == 4
