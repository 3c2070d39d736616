"""Runners with different labels on one bus: none claims what asks for a label that it lacks, and each answer is one."""

from __future__ import annotations

import random
import time

import pytest

from bridge.bus import history
from bridge.bus.presence import RunnerState
from bridge.bus.wire import State
from bridge.requests.waiting import Code
from bridge.system.git import Git
from runner.serve.loop import once

pytestmark = pytest.mark.bus

ALL = ["macOS", "Linux", "arm64", "x86", "gpu", "big", "quiet", "fast"]


def serve_all(runners, client, *, how_many, requests, seed):
    """Let runners with labels of their own answer requests for some of these; check who wrote what."""
    draw = random.Random(seed)
    # Each label is had by a runner, and most by several; its name is a label of its own.
    labels = {f"r{i}": {f"r{i}", ALL[i], *draw.sample(ALL, 3)} for i in range(how_many)}
    asked = {}
    for i in range(requests):
        name = f"r{i % how_many}"
        wanted = draw.sample(sorted(labels[name]), draw.randrange(3)) if i % 3 else [name]
        asked[client.run("noop", labels=wanted).branch] = set(wanted)
    for name, had in labels.items():
        runners.launch(name, labels=sorted(had))
    left = set(asked)
    deadline = time.monotonic() + 5 * requests + 60
    while left and time.monotonic() < deadline:
        tips = client.remote.fetch("mac-bridge/*")
        left = {
            b
            for b, branch in history.read_branches(client.git, tips).items()
            if not branch.current_state.is_final
        }
        time.sleep(0.5)
    assert not left
    return labels, asked


def check(bus, labels, asked):
    """Every state is by a runner with the labels; one claim, one answer; return how many each runner answered."""
    git = Git.isolated(bus)
    answers = dict.fromkeys(labels, 0)
    for branch, wanted in asked.items():
        tip = git.text("rev-parse", f"refs/heads/{branch}")
        commits = history.commits_between(git, None, tip)
        written = {}
        for _, state, _ in history.read_states(git, commits):
            if state and state.branch == branch:
                written[state.salt] = state
        assert all(wanted <= labels[state.runner.id] for state in written.values()), branch
        assert {state.token for state in written.values()} == {1}
        finals = [state for state in written.values() if state.state.is_final]
        assert [state.state for state in finals] == [State.SUCCEEDED], branch
        answers[finals[0].runner.id] += 1
    return answers


@pytest.mark.long
def test_three_runners_and_twelve_requests(runners, client, bus):
    labels, asked = serve_all(runners, client, how_many=3, requests=12, seed=1)

    answers = check(bus, labels, asked)
    assert sum(answers.values()) == 12
    assert min(answers.values()) > 0


@pytest.mark.long
def test_labels_come_from_the_policy_alone(runners, client, bus, wait_for):
    """A forged state or record that says otherwise gives a runner no label, and a request no runner."""
    runners.start(labels=["Linux"])
    wait_for(lambda: [seen.record.state for seen in client.runners()] == [RunnerState.SERVING])
    (seen,) = client.runners()
    git = Git.isolated(bus)
    forged = seen.record.model_copy(update={"labels": ["Linux", "gpu"], "presets": None})
    blob = git.text("hash-object", "-w", "--stdin", stdin=forged.to_bytes())
    tree = git.text("mktree", stdin=f"100644 blob {blob}\trunner.json\n")
    commit = git.with_env(
        GIT_AUTHOR_NAME="x", GIT_AUTHOR_EMAIL="x", GIT_COMMITTER_NAME="x", GIT_COMMITTER_EMAIL="x"
    )
    git("update-ref", seen.record.ref, commit.text("commit-tree", tree, "-m", "x"))

    run, other = client.run("noop", labels=["gpu"]), client.run("noop")

    assert other.wait(60).state is State.SUCCEEDED
    assert run.status().state is State.REQUESTED
    # What a client shows is what was forged: it says so nowhere but in the wait, since no key is pinned.
    assert run.status().reason.code in (Code.SOON, Code.TURN, Code.LABELS)


def test_a_runner_that_is_given_one_branch_leaves_it_too_if_it_lacks_a_label(keyed, client):
    run = client.run("noop", labels=["gpu"])
    with keyed.context() as context:
        assert once(context, run.branch) is None
    assert keyed.told[-1] == f"{run.branch}: asks for labels that this runner lacks"
    assert run.status().state is State.REQUESTED
