"""Rows of the attack table that are about how a runner is started, flooded and kept: 2, 22, 24 and 65."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from bridge.bus import branch_names, wire
from bridge.errors import RefusedError
from bridge.system.git import Git
from runner.cli import cli
from runner.context import open_runner
from runner.policy import load_policy
from runner.serve.compose import Composer
from runner.service.actions_listener import hook_script
from runner.upkeep.name_conflicts import NameConflicts, find_conflicts

ROOT = Path(__file__).parents[2]
WORKFLOW = ".github/workflows/mac-bridge.yaml"
REQUEST = "mac-bridge/noop-1790000000-abc123"
ACTIONS = {"repository": "team/bus", "workflows": [f"{WORKFLOW}@refs/heads/mac-bridge/*"]}


class GitHub:
    """GitHub's own runner as far as the hook sees it: it starts the hook, then the job unless the hook says no."""

    def __init__(self, folder: Path, policy: Path) -> None:
        self.ran = folder / "a-job-command-ran"
        self.event_file = folder / "event.json"
        self.hook = folder / "job-started.sh"
        self.hook.write_bytes(hook_script(Path(sys.executable), policy))
        self.policy = policy
        # A workflow chooses the working directory: what lies there must not be loaded.
        self.folder = folder / "workspace"
        (self.folder / "runner").mkdir(parents=True)
        for module in ("runner/__init__.py", "runner/__main__.py", "json.py"):
            (self.folder / module).write_text("raise SystemExit(0)\n")

    def describe(self, env: dict[str, str | None], event: object) -> dict[str, str | None]:
        """Return GitHub's variables with changes; `event` is the event's file (as it is where it is text)."""
        self.event_file.write_text(event if isinstance(event, str) else json.dumps(event))
        return {
            "GITHUB_REPOSITORY": "team/bus", "GITHUB_EVENT_NAME": "push", "GITHUB_REF": f"refs/heads/{REQUEST}",
            "GITHUB_WORKFLOW_REF": f"team/bus/{WORKFLOW}@refs/heads/{REQUEST}", "GITHUB_SHA": "a" * 40,
            "GITHUB_WORKFLOW_SHA": "a" * 40, "GITHUB_EVENT_PATH": str(self.event_file), **env,
        }  # fmt: skip

    def start(self, *, env: dict[str, str | None], event: object) -> subprocess.CompletedProcess[str]:
        """Start a job."""
        variables = self.describe(env, event)
        whole = {**os.environ, **{name: value for name, value in variables.items() if value is not None}}
        argv = ["bash", "-e", str(self.hook)]
        done = subprocess.run(argv, env=whole, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            self.ran.touch()
        return done


def push(**changes: object) -> dict[str, object]:
    """Return a push event as GitHub describes it."""
    return {
        "ref": f"refs/heads/{REQUEST}", "after": "a" * 40, "deleted": False,
        "repository": {"full_name": "team/bus"}, **changes,
    }  # fmt: skip


@pytest.fixture
def github(tmp_path, runners):
    return GitHub(tmp_path, runners.policy("host", actions=ACTIONS))


ROW_2 = {
    "another workflow": (
        {"GITHUB_WORKFLOW_REF": f"team/bus/.github/workflows/evil.yaml@refs/heads/{REQUEST}"},
        push(),
        "is not one of .github/workflows/mac-bridge.yaml@",
    ),
    "this workflow of another branch": (
        {"GITHUB_WORKFLOW_REF": f"team/bus/{WORKFLOW}@refs/heads/feature"}, push(), "is not one of"),
    "this workflow of another repository": (
        {"GITHUB_WORKFLOW_REF": f"evil/bus/{WORKFLOW}@refs/heads/{REQUEST}"}, push(), "is not one of"),
    "a file that is named like a reference": (
        {"GITHUB_WORKFLOW_REF": f"team/bus/{WORKFLOW}@refs/heads/mac-bridge/x.yaml@refs/heads/evil"},
        push(), "is not one of"),
    "another repository": (
        {"GITHUB_REPOSITORY": "evil/bus"}, push(repository={"full_name": "evil/bus"}), "'evil/bus' is not team/bus"),
    "another event": ({"GITHUB_EVENT_NAME": "pull_request_target"}, push(), "is not one of push"),
    "another branch": (
        {"GITHUB_REF": "refs/heads/feature"}, push(ref="refs/heads/feature"), "is not a branch under"),
    "a tag that is called like a request": ({"GITHUB_REF": f"refs/tags/{REQUEST}"}, push(), "is not a branch"),
    "a pull request's reference": ({"GITHUB_REF": "refs/pull/1/merge"}, push(), "is not a branch"),
    "a branch's name with other characters": (
        {"GITHUB_REF": "refs/heads/mac-bridge/$(id)"}, push(), "is not a branch"),
    "no commit id": ({"GITHUB_SHA": "HEAD"}, push(), "is not a commit id"),
    "an event about another commit": ({}, push(after="b" * 40), "the event's after"),
    "an event about another branch": ({}, push(ref="refs/heads/main"), "the event's ref"),
    "an event about another repository": ({}, push(repository={"full_name": "evil/bus"}), "the event's repository"),
    "a deletion": ({}, push(deleted=True), "the event's deleted"),
    "an event that is no JSON": ({}, "{", "the event cannot be read"),
    "an event that is nested without end": ({}, "[" * 200_000, "the event cannot be read"),
    "an event that is a list": ({}, [], "not one of GitHub's"),
    "an event without a repository": ({}, {"ref": f"refs/heads/{REQUEST}"}, "not one of GitHub's"),
    "no event file": ({"GITHUB_EVENT_PATH": "/nowhere/event.json"}, push(), "the event cannot be read"),
    **{
        f"{name} missing": ({name: None}, push(), f"{name} is not set")
        for name in ("GITHUB_REPOSITORY", "GITHUB_WORKFLOW_REF", "GITHUB_EVENT_NAME", "GITHUB_REF", "GITHUB_SHA",
                     "GITHUB_EVENT_PATH")
    },
}  # fmt: skip


def test_row_2_another_job_is_refused(github):
    for what, (env, event, says) in ROW_2.items():
        # The script sets what GitHub does not to an empty text.
        given = {name: value or "" for name, value in github.describe(env, event).items()}
        done = CliRunner().invoke(cli, ["--policy", str(github.policy), "hook"], env=given)
        assert isinstance(done.exception, RefusedError), what
        assert "this job may not run here" in done.exception.message, what
        assert says in done.exception.message, what


@pytest.mark.parametrize("what", ["another workflow", "GITHUB_REF missing"])
def test_row_2_the_script_refuses_another_job_before_its_first_command(github, what):
    env, event, says = ROW_2[what]
    done = github.start(env=env, event=event)
    assert done.returncode == 4, done.stderr
    assert says in done.stderr
    assert not github.ran.exists()


def test_row_2_the_job_that_the_policy_names_passes(github):
    done = github.start(env={}, event=push())
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"allowed: push of {REQUEST} at aaaaaaaaaaaa")
    assert github.ran.exists()


def test_row_2_without_a_section_in_the_policy_every_job_is_refused(tmp_path, runners):
    github = GitHub(tmp_path, runners.policy("host"))
    assert "the policy has no section `actions`" in github.start(env={}, event=push()).stderr
    assert not github.ran.exists()


@pytest.mark.parametrize("change", ["none", "a byte", "gone"])
def test_row_2_the_right_name_over_other_content_is_refused(tmp_path, runners, clone, git, change):
    content = (ROOT / WORKFLOW).read_bytes()
    known = hashlib.sha256(content).hexdigest()
    (clone / WORKFLOW).parent.mkdir(parents=True)
    (clone / WORKFLOW).write_bytes(content + b"\n" * (change == "a byte"))
    if change == "gone":
        (clone / WORKFLOW).rename(clone / "elsewhere.yaml")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "-m", "A request")
    git(clone, "push", "--quiet", "origin", f"HEAD:refs/heads/{REQUEST}")
    commit = git(clone, "rev-parse", "HEAD")
    github = GitHub(tmp_path, runners.policy("host", actions={**ACTIONS, "workflow_sha256": [known]}))

    told = {"GITHUB_SHA": commit, "GITHUB_WORKFLOW_SHA": commit}
    done = github.start(env=told, event=push(after=commit))

    assert github.ran.exists() == (done.returncode == 0) == (change == "none"), done.stderr
    assert change == "none" or "which the policy lacks" in done.stderr
    assert (
        github.start(env={**told, "GITHUB_WORKFLOW_SHA": "b" * 40}, event=push(after=commit)).returncode == 4
    )


def test_row_22_a_branch_that_blocks_all_requests_is_reported(runners, client, bus, git, tmp_path, wait_for):
    git(bus, "branch", "mac-bridge", "main")
    git(bus, "branch", "claude", "main")
    git(bus, "branch", "mac-bridges", "main")
    with pytest.raises(RefusedError):
        client.run("noop")

    runner = runners.start()
    wait_for(lambda: "no request can be made below 'claude', 'mac-bridge'" in runner.said())
    assert runner.stop() == 0
    policy = str(runners.policy("check"))
    argv = [sys.executable, "-P", "-m", "runner", "--policy", policy, "check", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert done.returncode == 1
    (check,) = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "squatting"]
    assert check["ok"] is False
    assert "Rename the branch 'claude', 'mac-bridge'" in check["fix"]


def test_row_22_a_name_that_differs_by_case_is_a_doubt_until_there_are_requests(runners, client, bus, git):
    git(bus, "branch", "Mac-Bridge", "main")
    with open_runner(load_policy(runners.policy("one")), lambda _: None) as context:
        assert find_conflicts(context.bus) == NameConflicts(similar=("Mac-Bridge",))
        client.run("noop")
        context.bus.fetch()
        assert find_conflicts(context.bus) == NameConflicts()


def test_row_22_names_that_only_look_alike_are_no_alarm(runners, bus, git):
    git(bus, "branch", "mac-bridges", "main")
    git(bus, "branch", "feature/mac-bridge", "main")
    with open_runner(load_policy(runners.policy("one")), lambda _: None) as context:
        assert find_conflicts(context.bus) == NameConflicts()


@pytest.fixture
def serving(runners):
    """A runner in this process: returns what handles everything that there is, and says how many requests that was."""

    def handle(**policy: object) -> int:
        with open_runner(load_policy(runners.policy("one", **policy)), lambda _: None) as context:
            poller, handled = Composer(context).poller(), 0
            while poller.poll():
                handled += 1
            return handled

    return handle


def test_row_24_an_answer_asks_for_nothing(client, serving, bus, git):
    run = client.run("noop")
    assert serving() == 1
    assert serving() == 0
    messages = git(bus, "log", "--format=%B%x00", f"{run.commit}..{run.branch}").split("\0")[:-1]
    assert len(messages) >= 2
    assert all("[skip ci]" in message for message in messages)


def test_row_24_an_answer_under_another_name_is_refused(client, serving, bus, git):
    run = client.run("noop")
    serving()
    parts = branch_names.parse_branch(run.branch)
    other = f"mac-bridge/noop-{parts.nonce}-copy"
    git(bus, "branch", other, run.branch)
    assert serving() == 1
    result = json.loads(git(bus, "show", f"{other}:{wire.RESULT}"))
    assert (result["state"], result["commands"]) == ("refused", [])
    assert serving() == 0


def test_row_24_a_cancellation_after_the_answer_starts_nothing(client, serving):
    run = client.run("noop")
    serving()
    before = client.view(run.branch).tip
    run.cancel()
    assert serving() == 0
    assert client.view(run.branch).tip == before


def test_row_24_a_merged_answer_does_not_ride_along_with_the_next_request(client, clone, serving, bus, git):
    run = client.run("noop")
    serving()
    git(clone, "fetch", "--quiet", "origin", run.branch)
    git(clone, "merge", "--quiet", "FETCH_HEAD")
    assert (clone / wire.RESULT).exists()

    second = client.run("noop")

    listed = git(bus, "ls-tree", "-r", "--name-only", second.branch).splitlines()
    assert [path for path in listed if path.startswith(".mac-bridge/")] == [wire.REQUEST]
    assert serving() == 1
    assert second.status().state == "succeeded"


FORGED_GIT = """\
#!/bin/sh
case "$*" in *"cat-file blob"*) exec cat {known} ;; esac
exec {git} "$@"
"""


@pytest.mark.parametrize("way", ["PATH", "XDG_STATE_HOME", "HOME", "git's variables", "a function", "none"])
def test_row_50_what_a_workflow_sets_does_not_reach_the_hook(tmp_path, runners, clone, bus, git, way):
    """Each makes git, or the shell, say that the workflow is the known one. It is not."""
    known = (ROOT / WORKFLOW).read_bytes()
    path = clone / WORKFLOW
    path.parent.mkdir(parents=True)
    path.write_bytes(known)
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "-m", "What the host knows")
    good = git(clone, "rev-parse", "HEAD")
    path.write_bytes(known + b"# and more\n")
    git(clone, "commit", "--quiet", "--all", "--amend", "-m", "Something else")
    commit = git(clone, "rev-parse", "HEAD")
    git(clone, "push", "--quiet", "origin", f"{commit}:refs/heads/{REQUEST}")
    policy = runners.policy(
        "host", actions={**ACTIONS, "workflow_sha256": [hashlib.sha256(known).hexdigest()]}
    )
    settings = yaml.safe_load(policy.read_text())
    del settings["state"]  # so that it lies where the environment says
    policy.write_text(yaml.safe_dump(settings))
    github = GitHub(tmp_path, policy)

    forged = tmp_path / "forged"
    for state in (forged / "kakeya/runner", forged / ".local/state/kakeya/runner"):
        state.mkdir(parents=True)
        git(tmp_path, "clone", "--quiet", "--bare", "--no-local", str(clone), str(state / "store.git"))
        git(
            state / "store.git",
            "fetch",
            "--quiet",
            str(clone),
            f"{good}:refs/heads/good",
            "HEAD:refs/heads/bad",
        )
        git(state / "store.git", "replace", commit, good)
    fake = forged / "git"
    (forged / "known").write_bytes(known)
    fake.write_text(FORGED_GIT.format(known=forged / "known", git=shutil.which("git")))
    fake.chmod(0o755)
    env = {
        "PATH": {"PATH": f"{forged}{os.pathsep}{os.environ['PATH']}"},
        "XDG_STATE_HOME": {"XDG_STATE_HOME": str(forged)},
        "HOME": {"HOME": str(forged)},
        "git's variables": {
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(forged / "kakeya/runner/store.git/objects"),
            "GIT_EXEC_PATH": str(forged), "GIT_REPLACE_REF_BASE": "refs/heads/",
        },
        "a function": {f"BASH_FUNC_{name}%%": "() {\n :\n}" for name in ("exec", "cd", "env", "command")},
        "none": {},
    }[way]  # fmt: skip

    told = {"GITHUB_SHA": commit, "GITHUB_WORKFLOW_SHA": commit}
    done = github.start(env={**told, **env}, event=push(after=commit))

    assert done.returncode == 4, done.stderr
    assert "which the policy lacks" in done.stderr
    assert not github.ran.exists()


def test_row_50_an_object_is_what_its_id_says(bus, git, clone):
    first = git(clone, "rev-parse", "HEAD")
    git(clone, "commit", "--quiet", "--allow-empty", "-m", "Another")
    git(clone, "replace", first, git(clone, "rev-parse", "HEAD"))
    for ours in (Git.of_user(clone), Git.isolated(clone / ".git")):
        assert ours.text("cat-file", "commit", first).endswith("A workload")
    assert git(clone, "cat-file", "commit", first).endswith("Another")
