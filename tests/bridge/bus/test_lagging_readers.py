"""A bus whose readers are served by copies that lag behind what was pushed: one run and one answer, only later."""

from __future__ import annotations

import itertools

import pytest

from bridge.bus.wire import State
from bridge.client import Client
from bridge.errors import RefusedError
from bridge.mcp import calls, models

pytestmark = pytest.mark.bus

JOB = """
import sys, time

open({count!r}, "a").write("x\\n")
for i in range(int(sys.argv[1])):
    print(i, flush=True)
    time.sleep(0.25)
"""


@pytest.fixture
def job(tmp_path, presets, monkeypatch):
    """Two presets that note each of their starts: `brief`, and `slow`, which prints for 100 seconds."""
    count = tmp_path / "count"
    program = tmp_path / "job.py"
    program.write_text(JOB.format(count=str(count)))
    argv = ["${ENV:KAKEYA_MAC_PYTHON}", str(program)]
    ticks = {"brief": "6", "slow": "400"}
    folder = presets(
        **{name: {"timeout_s": 250, "steps": [{"argv": [*argv, n]}]} for name, n in ticks.items()}
    )
    monkeypatch.setenv("KAKEYA_PRESETS", str(folder))

    def started() -> int:
        return len(count.read_text().split()) if count.exists() else 0

    started.folder = str(folder)
    return started


@pytest.fixture
def far(clone, http_bus, git, job):
    """A client whose remote is the bus over HTTP."""
    git(clone, "remote", "set-url", "origin", http_bus.url)
    return Client(clone)


def serve(runners, http_bus, job, name="one", **bus):
    quick = {"poll_s": 0.3, "idle_poll_s": 0.5, "pushes_per_minute": 120}
    return runners.start(name, preset_folder=job.folder, bus={"url": http_bus.url, **quick, **bus})


def states(events):
    return [event.status.state for event in events if not event.note and not event.log]


# One copy that lags, and two by turns, so that a reader also goes back in time.
LAGS = [(0.5,), (0.5, 6.0)]


@pytest.mark.rows(1)
@pytest.mark.parametrize("lags", LAGS)
def test_a_request_runs_once_and_is_answered(runners, http_bus, far, job, lags):
    with http_bus.lagging(*lags):
        runner = serve(runners, http_bus, job, lease_s=20)
        run = far.run("brief")
        seen = list(run.follow(200))

        assert seen[-1].status.state is State.SUCCEEDED
        # No state comes after a later one.
        order = [State.REQUESTED, State.CLAIMED, State.RUNNING, State.SUCCEEDED]
        assert states(seen) == sorted(states(seen), key=order.index)
        assert "".join(event.log for event in seen).split() == [str(i) for i in range(6)]
        assert run.status().state is State.SUCCEEDED
        assert [status.state for status in far.list()] == [State.SUCCEEDED]
        assert run.verify().result.state is State.SUCCEEDED
        assert job() == 1
        said = runner.said()
    for wrong in ("pushed to again", "under this one's id", "is published again", "dropped", "trying again"):
        assert wrong not in said, said


@pytest.mark.long
@pytest.mark.parametrize("lags", [(6.0,), (0.0, 1.5)])
def test_what_was_just_sent_is_there_for_every_command(http_bus, far, lags, clone):
    with http_bus.lagging(*lags):
        run = far.run("brief")
        for client in (far, Client(clone)):
            assert client.status(run.branch).state is State.REQUESTED
            assert [status.branch for status in client.list()] == [run.branch]
            assert client.logs(run.branch) == ""
            assert client.find(run.branch[-6:]).branch == run.branch
        bus = calls.BusClient(str(clone), "origin")
        assert calls.status(bus, models.About(request=run.branch)).state == "requested"
        assert next(run.follow(60)).status.state is State.REQUESTED

        assert run.cancel("enough").state is State.CANCELLED
        for client in (far, Client(clone)):
            assert client.status(run.branch).state is State.CANCELLED
            assert client.cancel(run.branch).state is State.CANCELLED
        assert calls.status(bus, models.About(request=run.branch)).state == "cancelled"

        branch = far.view(run.branch)
        assert far.remote.delete(run.branch, expect=branch.tip)
        for client in (far, Client(clone)):
            assert client.list() == []


@pytest.mark.parametrize("key", [None, "a"])
def test_a_request_that_arrived_although_the_reply_is_lost_is_sent_once(http_bus, far, bus, git, key):
    answers = iter([True])
    http_bus.loses_reply = lambda _: next(answers, False)
    with http_bus.lagging(600.0):
        run = far.run("brief", idempotency_key=key)
        assert far.status(run.branch).state is State.REQUESTED
        if key:
            assert far.run("brief", idempotency_key=key).branch == run.branch
    branches = git(bus, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/mac-bridge/").split()
    assert branches == [run.branch]


def test_a_real_deletion_and_a_real_rewrite_are_noticed(http_bus, far, bus, git):
    gone, other = far.run("brief"), far.run("brief")
    with http_bus.lagging(0.2):
        for run in (gone, other):
            assert next(run.follow(60)).status.state is State.REQUESTED
        git(bus, "update-ref", "-d", f"refs/heads/{gone.branch}")
        git(bus, "update-ref", f"refs/heads/{other.branch}", "refs/heads/main")
        with pytest.raises(RefusedError) as deleted:
            gone.wait(100)
        with pytest.raises(RefusedError) as rewritten:
            other.wait(100)
    assert (deleted.value.code, rewritten.value.code) == ("gone", "rewritten")


@pytest.mark.long
def test_a_running_job_can_be_cancelled(runners, http_bus, far, job):
    with http_bus.lagging(6.0):
        serve(runners, http_bus, job, lease_s=60, pushes_per_minute=30)
        run = far.run("slow")
        for event in run.follow(100):
            if event.log:
                break
        run.cancel("enough")
        assert run.wait(100).state is State.CANCELLED
        assert job() == 1


@pytest.mark.long
def test_of_several_runners_one_runs_each_request(runners, http_bus, far, job):
    with http_bus.lagging(0.0, 3.0):
        started = [serve(runners, http_bus, job, name, lease_s=5) for name in ("one", "two")]
        runs = [far.run("brief") for _ in range(3)]
        assert [run.wait(200).state for run in runs] == [State.SUCCEEDED] * 3
        assert job() == 3
    for runner in started:
        assert "dropped" not in runner.said()
        assert "pushed to again" not in runner.said()


@pytest.mark.long
def test_pushes_whose_replies_are_lost_are_recognized(runners, http_bus, far, job):
    """Claims, heartbeats, answers and the runner's record: of three pushes, the first gets no reply."""
    pushes = itertools.count()
    http_bus.loses_reply = lambda _: next(pushes) % 3 == 0
    with http_bus.lagging(6.0):
        runner = serve(runners, http_bus, job, lease_s=20)
        runs = [far.run("brief") for _ in range(3)]
        assert [run.wait(200).state for run in runs] == [State.SUCCEEDED] * 3
        assert job() == 3
    for wrong in ("another runner was faster", "pushed to again", "does not take this runner's record"):
        assert wrong not in runner.said()


@pytest.mark.long
def test_a_runner_that_was_killed_goes_on_where_it_was(runners, http_bus, far, job, wait_for):
    with http_bus.lagging(3.0):
        runner = serve(runners, http_bus, job, lease_s=60)
        run = far.run("brief")
        wait_for(lambda: job() == 1)
        runner.process.kill()
        runner.process.wait(60)
        again = serve(runners, http_bus, job, lease_s=60)
        assert run.wait(100).state is State.SUCCEEDED
        assert job() == 2
    assert "under this one's id" not in again.said()
