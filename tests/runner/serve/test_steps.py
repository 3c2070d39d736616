"""Jobs of several steps, with a real runner: what is streamed, what is kept, how many commits that takes."""

from __future__ import annotations

import pytest

from bridge.bus import history
from bridge.bus.wire import State
from bridge.client import Client
from runner.job.leaves import find_files

pytestmark = pytest.mark.bus

SHELL = "/bin/sh"


def steps(*scripts):
    return {"steps": [{"argv": [SHELL, "-c", script]} for script in scripts]}


def commits(client, run):
    """Return how many commits a request's runner made."""
    branch = client.view(run.branch)
    return len(history.commits_between(client.git, branch.request, branch.tip))


@pytest.mark.long
def test_the_end_of_a_step_is_streamed_before_the_next_one_begins(clone, runners, presets, tmp_path):
    """The first step ends before the first heartbeat, and the second one goes on through several."""
    loud = (
        f"for i in 1 2 3 4 5 6; do echo second $i; until [ -e {tmp_path}/read-$i ]; do sleep 0.1; done; done"
    )
    folder = presets(two=steps("echo first", loud))
    runners.start(preset_folder=str(folder))
    client = Client(clone, presets=folder)
    run = client.run("two")

    text = ""
    for event in run.follow(timeout=120):
        text += event.log
        for line in event.log.splitlines():
            (tmp_path / line.replace("second ", "read-")).touch()

    assert text == "first\n" + "".join(f"second {i}\n" for i in range(1, 7))
    assert commits(client, run) > 4
    report = run.verify()
    assert report.holds, [check for check in report.checks if check.ok is False]
    (logs,) = [check for check in report.checks if check.name == "logs"]
    assert logs.ok
    assert run.fetch(tmp_path / "out").result.state is State.SUCCEEDED
    assert run.logs() == text


LEFT = {
    "a new file": (["out/*.txt"], "mkdir out; echo 1 > out/a.txt", ""),
    "a file that is rewritten": (["readme.txt"], "echo new > readme.txt", ""),
    "several": (["a", "b/*/c"], "mkdir -p b/x; echo > a; echo > b/x/c", ""),
    "nothing": (["out/*.txt"], "true", "out/*.txt"),
    "one of two": (["a", "b"], "echo > a", "b"),
    "a file of the request, unchanged": (["readme.txt", "read*"], "true", "readme.txt, read*"),
    "a link to a file": (["a"], "ln -s readme.txt a", "a"),
    "a folder": (["a"], "mkdir a", "a"),
    "a file below a link to a folder": (["a/x*"], "mkdir b; echo > b/x1; ln -s b a", "a/x*"),
    "too deep": (["*.txt"], "mkdir d; echo > d/new.txt", "*.txt"),
    "many": (list("abcde"), "true", "a, b, c and 2 more"),
}


@pytest.mark.rows(4)
@pytest.mark.parametrize(("leaves", "script", "absent"), LEFT.values(), ids=LEFT)
def test_a_job_that_does_not_leave_its_files_has_failed(client, keyed, presets, leaves, script, absent):
    folder = presets(made={**steps("true", script), "leaves": leaves, "code": "request"})
    run = Client(client.git.base(), presets=folder).run("made")

    keyed.handle(preset_folder=str(folder), trust={"code_request": "allow"})

    result = client.result(run.branch)
    assert [command.exit_code for command in result.commands] == [0, 0]
    if absent:
        message = f"step 1 ended with 0, but left no new file {absent}"
        assert (result.state, result.reason.code, result.reason.message) == (
            State.FAILED, "no_file_left", message,
        )  # fmt: skip
    else:
        assert (result.state, result.reason.code) == (State.SUCCEEDED, "ok")


def test_looking_for_files_has_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr("runner.job.leaves.MAX_SEEN", 3)
    for name in "abcde":
        (tmp_path / f"{name}.txt").touch()

    assert len(find_files(["*.txt"], tmp_path)["*.txt"]) == 3
    assert find_files(["*.txt"], tmp_path / "gone") == {"*.txt": frozenset()}
