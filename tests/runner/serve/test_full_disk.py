"""A disk that is full: no job that has ended and no request is abandoned, and the log tells no lies about it."""

from __future__ import annotations

import resource
import sys
import time

import pytest

from bridge.bus.wire import State
from runner.faults import why_not_writable

pytestmark = [
    pytest.mark.bus,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux changes the limits of another process"),
]


@pytest.fixture
def counting(presets, tmp_path):
    """A preset that waits for a file and then prints much, and the file with one line for each execution."""
    count = tmp_path / "count"
    count.touch()
    script = 'echo ran >> "$0"; while [ ! -e "$0.go" ]; do sleep 0.05; done; head -c 400000 /dev/urandom | od -An -tx1'
    return presets(much={"steps": [{"argv": ["/bin/sh", "-c", script, str(count)]}]}), count


def _limit(runner, most: int) -> None:
    """Let a process, and what it starts from now on, write no file larger than this: what a full disk looks like."""
    _, hard = resource.prlimit(runner.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(runner.process.pid, resource.RLIMIT_FSIZE, (most, hard))


@pytest.mark.long
def test_a_job_that_ended_while_the_disk_was_full_is_answered_when_there_is_room(
    runners, client, requester, counting, wait_for
):
    folder, count = counting
    runner = runners.start(preset_folder=str(folder))
    branch = requester.send(requester.manifest("much"))
    wait_for(count.read_text)
    wait_for(lambda: client.status(branch).state is State.RUNNING)

    _limit(runner, 100_000)
    count.with_name("count.go").touch()
    wait_for(lambda: "cannot be written to" in runner.said())
    time.sleep(4)  # more attempts than a branch that fails gets
    assert not client.status(branch).state.is_final
    assert runner.process.poll() is None
    assert runner.said().count("cannot be written to") == 1
    _limit(runner, resource.RLIM_INFINITY)

    assert client.wait(branch, timeout=120).state is State.SUCCEEDED
    assert client.verify(branch).holds
    assert count.read_text() == "ran\n"
    assert "left alone" not in runner.said()
    wait_for(lambda: f"{branch}: succeeded" in runner.said())
    runner.stop()


@pytest.mark.long
def test_a_request_that_comes_while_the_disk_is_full_waits_for_room(
    runners, client, requester, counting, wait_for
):
    folder, count = counting
    count.with_name("count.go").touch()
    runner = runners.start(preset_folder=str(folder))
    _limit(runner, 0)
    branch = requester.send(requester.manifest("much"))
    time.sleep(5)  # more attempts than a branch that fails gets
    assert runner.process.poll() is None
    assert client.status(branch).state is State.REQUESTED
    _limit(runner, resource.RLIM_INFINITY)

    assert client.wait(branch, timeout=120).state is State.SUCCEEDED
    assert count.read_text() == "ran\n"
    runner.stop()


def test_a_folder_that_can_be_written_to_has_room(tmp_path):
    assert why_not_writable(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    assert why_not_writable(tmp_path / "missing") == "No such file or directory"
