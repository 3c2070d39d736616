"""The runner's wall clock is set while it works: nothing expires, runs twice, or is lost.

Real runner processes. Their wall clock, and no other clock, is shifted by a library that is loaded before libc.
"""

from __future__ import annotations

import shutil
import sys
from types import SimpleNamespace

import pytest

from bridge.bus.wire import State
from bridge.client import Client
from runner.host import clock as module
from runner.host.clock import Clock
from runner.serve.compose import Composer
from runner.state.ledger import Ledger

DAY, YEAR = 86_400, 31_536_000
shifted = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None,
    reason="needs Linux and a C compiler to shift a clock",
)


@pytest.fixture
def times(monkeypatch):
    """Both clocks, standing where they are put."""
    now = SimpleNamespace(wall=1e9, forward=100.0)
    monkeypatch.setattr(module.time, "time", lambda: now.wall)
    monkeypatch.setattr(module.time, "monotonic", lambda: now.forward)
    return now


@pytest.mark.parametrize("by", [DAY, -YEAR, 301])
def test_a_clock_that_is_set_is_doubted_for_a_while_and_told_once(times, by):
    clock = Clock(300)
    times.forward += 5000
    times.wall += 5000
    assert not clock.is_doubtful()
    times.wall += by
    assert clock.is_doubtful()
    assert f"{'forward' if by > 0 else 'back'} by {abs(by)} s" in clock.news()
    assert clock.news() is None
    times.forward += 899
    times.wall += 899
    assert clock.is_doubtful()
    times.forward += 2
    times.wall += 2
    assert not clock.is_doubtful()


def test_a_clock_that_drifts_or_is_set_a_little_is_believed(times):
    clock = Clock(300)
    for _ in range(100):
        times.forward += 60
        times.wall += 60 + 20
        assert not clock.is_doubtful()


def test_at_the_start_a_clock_is_believed_once_something_confirms_it(times):
    seen = []
    clock = Clock(300, witness=lambda: seen)
    assert clock.is_doubtful()
    assert "nothing on the bus confirms this machine's clock" in clock.news()
    assert clock.news() is None
    seen.append(times.wall - DAY)
    times.forward += 6
    times.wall += 6
    assert clock.is_doubtful()
    seen.append(times.wall + 299)
    assert clock.is_doubtful(), "the bus is not looked at all the time"
    times.forward += 6
    times.wall += 6
    assert not clock.is_doubtful()
    assert not clock.is_doubtful()


def test_a_clock_that_nothing_confirms_is_believed_after_a_while(times):
    clock = Clock(300, witness=lambda: [times.wall - YEAR])
    assert clock.is_doubtful()
    times.forward += 901
    times.wall += 901
    assert not clock.is_doubtful()


@pytest.mark.parametrize("seen", [[], [1.0], [1e12]], ids=["nothing", "the past", "the future"])
def test_that_nothing_confirms_a_clock_is_told_once(times, seen):
    clock = Clock(300, witness=lambda: seen)
    told = []
    for _ in range(1000):
        clock.is_doubtful()
        told += [clock.news()]
        times.forward += 1
        times.wall += 1
    assert len([line for line in told if line]) == 1


def test_a_clock_that_jumps_all_the_time_is_told_once_in_the_time_of_doubt(times):
    clock = Clock(300)
    told = []
    for _ in range(1000):
        clock.is_doubtful()
        told += [clock.news()]
        times.forward += 1
        times.wall += 400
    assert len([line for line in told if line]) == 2


def test_turns_of_a_future_that_did_not_come_are_not_counted(tmp_path):
    """Or a quota that was used up under a clock a year ahead would stay used up for a year."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.record_start("a", 1e9 + YEAR)
    assert ledger.taken_between(1e9 - 3600, 1e9) == {}
    ledger.record_start("a", 1e9)
    assert ledger.taken_between(0, 2e9) == {"a": 1}


def test_retention_deletes_nothing_while_the_clock_is_in_doubt(host, requester, monkeypatch):
    branch = requester.send(requester.manifest())
    assert host.answer(branch).state == "succeeded"
    with host.context(retention={"days": 30}) as context:
        real = module.time.time
        monkeypatch.setattr(module.time, "time", lambda: real() + YEAR)
        Composer(context).chores().run_if_due()
        assert context.bus.fetch().keys() == {branch}


@pytest.fixture
def counting(presets, tmp_path):
    """Presets that count their executions; `wait` lasts until `go` exists."""
    count = tmp_path / "count"
    count.touch()
    wait = 'while [ ! -e "$0.go" ]; do sleep 0.05; done'
    folder = presets(
        quick={"steps": [{"argv": ["/bin/sh", "-c", 'echo ran >> "$0"', str(count)]}]},
        wait={"steps": [{"argv": ["/bin/sh", "-c", f'echo ran >> "$0"; {wait}', str(count)]}]},
    )
    return folder, count


def runs(count):
    return len(count.read_text().splitlines())


@pytest.mark.long
@shifted
@pytest.mark.bus
@pytest.mark.parametrize("by", [DAY, -YEAR], ids=["a day forward", "a year back"])
def test_a_clock_that_jumps_while_a_job_runs_and_another_runner_watches(
    runners, clone, counting, set_clock, wait_for, by
):
    """The holder's time-out and heartbeats, and the observer's lease, go by what passed."""
    folder, count = counting
    client = Client(clone, presets=folder)
    # A runner on a busy machine may be late with a heartbeat by some seconds.
    bus = {"lease_s": 15, "poll_s": 0.1, "idle_poll_s": 0.2}
    holder = runners.start("one", preset_folder=str(folder), bus=bus)
    run = client.run("wait")
    wait_for(lambda: runs(count))
    runners.start("two", preset_folder=str(folder), bus=bus)

    set_clock(by)
    for _ in range(2):  # heartbeats after the jump
        sequence = client.view(run.branch).sequence
        wait_for(lambda seen=sequence: client.view(run.branch).sequence > seen)
    count.with_name("count.go").touch()

    assert run.wait(timeout=120).state is State.SUCCEEDED
    assert runs(count) == 1
    assert client.view(run.branch).token == 1
    assert 0 < client.result(run.branch).seconds < 60
    assert client.verify(run.branch).holds
    wait_for(lambda: "this machine's clock went" in holder.said())


@pytest.mark.long
@shifted
@pytest.mark.bus
def test_a_clock_that_jumps_between_polls_and_is_set_right_again(
    runners, clone, counting, set_clock, wait_for
):
    """What looks expired, or of the future, waits for a clock that can be believed, and then runs once."""
    folder, count = counting
    client = Client(clone, presets=folder)
    runner = runners.start(preset_folder=str(folder), bus={"poll_s": 0.1, "idle_poll_s": 0.2})
    assert client.run("quick").wait(timeout=120).state is State.SUCCEEDED

    for done, by in enumerate((3 * DAY, -YEAR), start=1):
        set_clock(by)
        # The second jump is within the time of doubt that the operator was told of.
        wait_for(lambda: "this machine's clock went" in runner.said())
        run = client.run("quick")
        with pytest.raises(Exception, match=r"no runner (took|is alive)"):
            run.wait(timeout=1.5)
        assert runs(count) == done
        set_clock(0)

        assert run.wait(timeout=120).state is State.SUCCEEDED
        assert runs(count) == done + 1
        assert client.verify(run.branch).holds
