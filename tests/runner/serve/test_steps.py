"""Jobs of several steps, with a real runner: what is streamed, what is kept, how many commits that takes."""

from __future__ import annotations

import pytest

from bridge.bus import history
from bridge.bus.wire import State
from bridge.client import Client

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
