"""How many pushes a runner really makes, counted by a hook of the bus: six a minute, and always the last word."""

from __future__ import annotations

import signal
import time

import pytest

from bridge.bus import presence
from bridge.bus.presence import RunnerState
from bridge.bus.wire import State
from bridge.client import Client
from bridge.requests.sighting import Availability
from bridge.requests.waiting import Code

pytestmark = pytest.mark.bus


@pytest.fixture
def pushes(bus):
    """Return a function that lists when the bus took a push, and the references that it moved."""
    log = bus / "pushes"
    log.touch()
    hook = bus / "hooks" / "post-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\necho $(date +%s.%N) $(cut -d' ' -f3) >> {log}\n")
    hook.chmod(0o755)

    def listed(ref: str) -> list[tuple[float, str]]:
        lines = (line.partition(" ") for line in log.read_text().splitlines())
        return [(float(at), refs) for at, _, refs in lines if ref in refs]

    return listed


@pytest.fixture
def talking(presets):
    """A preset whose job prints a line five times a second, for half a minute."""
    script = "i=0; while [ $i -lt 150 ]; do echo $i; i=$((i+1)); sleep 0.2; done"
    return presets(talks={"steps": [{"argv": ["/bin/sh", "-c", script]}]})


@pytest.mark.long
@pytest.mark.parametrize("lease_s", [120, 5])
def test_a_job_whose_log_streams_makes_six_pushes_a_minute(
    runners, client, talking, pushes, wait_for, lease_s
):
    """On a local bus with the default budget. A lease that these pushes cannot keep is announced longer."""
    settings = {"pushes_per_minute": None, "lease_s": lease_s}
    runners.start(preset_folder=str(talking), bus=settings)
    wait_for(client.runners)
    run = Client(client.git.directory, presets=talking).run("talks")
    pieces = [event.log for event in run.follow(120) if event.status.state is State.RUNNING and event.log]
    assert run.status().state is State.SUCCEEDED

    at = [when for when, _ in pushes(run.branch)][1:]  # the first one is the request
    assert 4 <= len(at) <= 6
    assert max(at) - min(at) < 60
    assert len(pieces) >= 2, "the log streams"


@pytest.mark.long
@pytest.mark.parametrize("per_minute", [1, 6])
def test_the_last_word_needs_no_budget(runners, client, pushes, wait_for, per_minute):
    runner = runners.start(bus={"pushes_per_minute": per_minute})
    for _ in range(3):
        assert client.run("noop").wait(60).state is State.SUCCEEDED
    assert runner.stop() == 0
    ((_, last),) = pushes(presence.REFS)[-1:]
    assert last.startswith(presence.REFS), "it is pushed alone"
    (seen,) = client.runners()
    assert seen.record.state is RunnerState.STOPPED
    status = client.run("noop").status()
    assert status.reason.code is Code.NO_RUNNER
    assert "is free" not in status.outlook


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_runner_that_cannot_say_anything_any_more_is_a_doubt_after_two_polls(
    runners, client, wait_for, how
):
    runner = runners.start()
    wait_for(client.runners)
    runner.process.send_signal(how)
    sent = time.monotonic()
    run = client.run("noop")
    wait_for(lambda: run.status().reason.code is Code.DOUBT)
    assert time.monotonic() - sent < 60
    assert "is free" not in run.status().outlook
    (seen,) = client.runners()
    assert seen.poll_s == 0.2
    assert seen.availability(time.time()) is Availability.QUIET
    runner.process.send_signal(signal.SIGCONT)
