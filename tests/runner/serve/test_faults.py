"""What goes wrong around a runner: an answer is kept and published once, and one bad branch stops nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bridge.bus.wire import State
from runner.state.ledger import Ledger

pytestmark = pytest.mark.bus


@pytest.fixture
def counting(presets, tmp_path):
    """A preset that counts its executions, and the file with one line for each."""
    count = tmp_path / "count"
    count.touch()
    note = 'echo ran >> "$0"'
    wait = 'while [ ! -e "$0.go" ]; do sleep 0.05; done'
    folder = presets(
        count={"steps": [{"argv": ["/bin/sh", "-c", note, str(count)]}]},
        wait={"steps": [{"argv": ["/bin/sh", "-c", f"{note}; {wait}", str(count)]}]},
    )
    return folder, count


@pytest.fixture
def decline(bus):
    """Let the bus decline pushes to request branches as long as the returned file exists."""
    flag = bus / "decline"
    hook = bus / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n[ ! -e {flag} ] || {{ echo 'not now' >&2; exit 1; }}\n")
    hook.chmod(0o755)
    return flag


def _answers(git, bus, branch):
    """Return how many final states a branch carries."""
    said = git(bus, "log", "--format=%s", branch).splitlines()
    return sum(line.startswith("mac-bridge results:") for line in said)


def _runs(count):
    return len(count.read_text().splitlines())


def _asked(client, requester, preset):
    return requester.send(requester.manifest(preset))


@pytest.mark.long
@pytest.mark.parametrize("restart", [False, True], ids=["same-runner", "after-SIGKILL"])
def test_an_answer_that_cannot_be_pushed_is_kept_and_published_once(
    runners, client, requester, counting, decline, git, bus, wait_for, restart
):
    folder, count = counting
    runner = runners.start(preset_folder=str(folder), bus={"lease_s": 600})
    branch = _asked(client, requester, "wait")
    wait_for(lambda: _runs(count))
    decline.touch()
    count.with_name("count.go").touch()
    ledger = Path(runners.folder / "state-one" / "ledger.sqlite")
    wait_for(lambda: "succeeded (every step" in runner.said())
    assert client.status(branch).state.is_taken

    if restart:
        runner.process.kill()
        runner.process.wait()
        runner = runners.start(preset_folder=str(folder), bus={"lease_s": 600})
    time.sleep(1.0)  # some rounds of failing pushes
    decline.unlink()

    assert client.wait(branch, timeout=120).state is State.SUCCEEDED
    wait_for(lambda: "waiting is published" in runner.said())
    assert _runs(count) == 1
    assert _answers(git, bus, branch) == 1
    assert client.verify(branch).holds
    assert runner.stop() == 0
    assert Ledger(ledger).unsent_answers() == []


@pytest.mark.long
def test_a_bus_that_declines_is_not_hammered_and_the_request_is_not_lost(
    runners, client, requester, counting, decline, git, bus, wait_for
):
    folder, count = counting
    branch = _asked(client, requester, "count")
    decline.touch()
    runner = runners.start(preset_folder=str(folder))
    wait_for(lambda: "could not be pushed" in runner.said())
    time.sleep(2.0)
    tries = runner.said().count("could not be pushed")
    decline.unlink()

    assert client.wait(branch, timeout=120).state is State.SUCCEEDED
    assert 1 <= tries <= 5
    assert _runs(count) == 1


@pytest.mark.long
def test_a_bus_that_is_away_for_a_while_is_waited_out(
    runners, client, requester, counting, bus, git, wait_for
):
    folder, count = counting
    runner = runners.start(preset_folder=str(folder), bus={"lease_s": 600})
    branch = _asked(client, requester, "wait")
    wait_for(lambda: _runs(count))
    away = bus.with_name("away.git")
    bus.rename(away)
    count.with_name("count.go").touch()
    wait_for(lambda: "cannot fetch" in runner.said())
    away.rename(bus)

    assert client.wait(branch, timeout=120).state is State.SUCCEEDED
    assert _runs(count) == 1
    assert _answers(git, bus, branch) == 1
