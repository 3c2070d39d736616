"""Requests and answers, read a second time with GitPython: what it finds is what our own readers say.

GitPython parses trees and commits with code of its own, so it does not repeat a mistake of ours about them.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import closing

import git as gitpython
import pytest

from bridge.bus import history, objects, wire
from bridge.bus.wire import State
from bridge.client import Client
from bridge.system.git import Git
from tests.trees import list_tree

pytestmark = pytest.mark.bus


@pytest.fixture
def repo(bus):
    """The bus, as GitPython reads it."""
    with closing(gitpython.Repo(bus)) as opened:
        yield opened


def files_of(commit):
    """Return each file of a commit as mode, id and content."""
    return {
        blob.path: (blob.mode, blob.hexsha, blob.data_stream.read())
        for blob in commit.tree.traverse()
        if blob.type == "blob"
    }


def tip(repo, branch):
    return repo.commit(f"refs/heads/{branch}")


@pytest.fixture
def workload(clone, git):
    """Make a workload with odd names and modes, and old files of a bridge that a request must not carry on."""
    (clone / "a folder").mkdir()
    (clone / "a folder" / "ein Täst\t.txt").write_bytes(b"\xff\x00\n")
    (clone / "a-folder").write_text("sorts before the folder\n")
    (clone / "run.sh").write_text("#!/bin/sh\n")
    (clone / "run.sh").chmod(0o755)
    (clone / "link").symlink_to("run.sh")
    (clone / wire.FOLDER).mkdir()
    (clone / wire.FOLDER / "left-over.json").write_text("{}\n")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "-m", "Odd names")
    return git(clone, "rev-parse", "HEAD")


def test_a_request_is_the_workload_and_one_file(clone, repo, workload):
    run = Client(clone).run("noop", ref="main")

    commit = tip(repo, run.branch)
    assert commit.hexsha == run.commit
    assert [parent.hexsha for parent in commit.parents] == [workload]
    sent, had = files_of(commit), files_of(repo.commit(workload))
    manifest = json.loads(sent.pop(wire.REQUEST)[2])
    assert sent == {path: file for path, file in had.items() if not path.startswith(f"{wire.FOLDER}/")}
    assert (manifest["workload"], manifest["preset"], manifest["ref"]) == (workload, "noop", "main")
    assert manifest["requested_by"] == commit.author.email == "tester@example.invalid"
    assert commit.message == f"Request noop\n\nBranch: {run.branch}\n"


def test_a_snapshot_holds_the_working_tree_and_changes_nothing_here(clone, repo, workload, git):
    (clone / "run.sh").write_text("changed\n")
    (clone / "new").write_text("untracked\n")
    with closing(gitpython.Repo(clone)) as mine:
        before = (mine.head.commit.hexsha, mine.untracked_files, [d.a_path for d in mine.index.diff(None)])

        run = Client(clone).run("noop", snapshot=True)

        after = (mine.head.commit.hexsha, mine.untracked_files, [d.a_path for d in mine.index.diff(None)])
    assert before == after == (workload, ["new"], ["run.sh"])
    (snapshot,) = tip(repo, run.branch).parents
    assert [parent.hexsha for parent in snapshot.parents] == [workload]
    mode, _, content = files_of(snapshot)["run.sh"]
    assert (mode, content) == (0o100755, b"changed\n")
    assert "new" not in files_of(snapshot)


@pytest.mark.long
def test_an_answer_follows_its_request_and_holds_what_the_result_says(
    clone, repo, workload, runners, presets
):
    jobs = presets(noop={"steps": [{"argv": ["/bin/echo", "done"]}]})
    runners.start(preset_folder=str(jobs))
    client = Client(clone, presets=jobs)
    run = client.run("noop")
    assert run.wait(60).state is State.SUCCEEDED
    result = client.result(run.branch)

    answer = tip(repo, run.branch)
    chain = [answer, *answer.iter_parents()]
    request = next(commit for commit in chain if commit.hexsha == run.commit)
    before, after = files_of(request), files_of(answer)
    assert {path: after[path] for path in before} == before
    came = {path: content for path, (_, _, content) in after.items() if path not in before}
    listed = {log.path: (log.stream_bytes, log.stream_sha256) for log in result.logs}
    listed |= {file.path: (file.size, file.sha256) for file in result.files}
    assert listed.keys() <= came.keys()
    for path, (size, digest) in listed.items():
        assert (len(came[path]), hashlib.sha256(came[path]).hexdigest()) == (size, digest), path
    assert json.loads(came[wire.RESULT])["state"] == "succeeded"
    assert [len(commit.parents) for commit in chain[: chain.index(request) + 1]] == [1] * (
        chain.index(request) + 1
    )


def test_both_readers_see_the_same_trees_parents_and_blobs(clone, bus, repo, workload):
    run = Client(clone).run("noop")
    mine = Git.of_user(bus)

    ours = list_tree(mine, run.commit, recursive=True)

    commit = tip(repo, run.branch)
    theirs = {
        path: (f"{mode:06o}", oid, len(content)) for path, (mode, oid, content) in files_of(commit).items()
    }
    assert {entry.path: (entry.mode, entry.oid, entry.size) for entry in ours} == theirs
    assert objects.parents_of(mine, run.commit) == [parent.hexsha for parent in commit.parents]
    branch = history.read_branch(mine, run.branch, commit.hexsha)
    assert (branch.tip, branch.current_state) == (commit.hexsha, State.REQUESTED)
