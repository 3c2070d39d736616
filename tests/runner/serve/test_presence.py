"""A runner announces itself: signed, within the push budget, and with what the operator ordered."""

from __future__ import annotations

import json
import signal
import time

import psutil
import pytest

from bridge.bus import objects, presence
from bridge.bus.presence import RunnerState
from bridge.bus.wire import State
from bridge.client import Client
from bridge.requests.waiting import Code
from bridge.system.git import Git
from runner.serve.compose import Composer
from runner.state.orders import DRAIN, MAINTENANCE, OperatorMode, Orders
from tests import programs

pytestmark = pytest.mark.bus

# Soon enough for a test, and for another runner's record to be out of date.
SOON = {"presence_s": 1}


def record_on(bus, context=None):
    """Return the only record on the bus."""
    git = Git.isolated(bus)
    listed = git.text("for-each-ref", "--format=%(objectname) %(refname)", presence.REFS).split("\n")
    ((oid, ref),) = (line.split() for line in listed)
    return presence.parse(objects.read_blob(git, oid, presence.FILE, max_bytes=1 << 20), ref)


def order(policy, *args):
    """Run a command of the operator's beside the runner."""
    done = programs.run("--policy", policy, *args)
    return done.returncode, done.stdout + done.stderr


def states(client):
    return [seen.record.state for seen in client.runners()]


def test_a_runner_says_who_it_is_what_it_runs_and_when_it_ends(runners, client, bus, wait_for):
    runner = runners.start(labels=["macOS"], presets=["noop"])
    wait_for(lambda: states(client) == [RunnerState.SERVING])
    record = record_on(bus)
    assert (record.id, record.labels, list(record.presets)) == ("one", ["macOS"], ["noop"])
    assert record.presets["noop"] == client.presets["noop"].digest
    assert (record.valid_s, record.quota.waiting) == (720.0, 100)

    assert runner.stop() == 0
    (seen,) = client.runners()
    assert (seen.record.state, seen.is_alive(time.time())) == (RunnerState.STOPPED, False)
    status = client.run("noop").status()
    assert (status.reason.code, status.reason.runner) == (Code.NO_RUNNER, "one")
    assert status.outlook.endswith("On the machine of one: kakeya-runner serve")


@pytest.mark.long
def test_labels_that_no_runner_has_are_told_within_one_poll(runners, client, wait_for, monkeypatch):
    runners.start(labels=["macOS"])
    wait_for(lambda: states(client))
    run = client.run("noop", labels=["macOS", "gpu"])
    monkeypatch.setattr("bridge.requests.follow.FIRST_NOTE_S", 1000.0)  # other notes come after this time
    note = next(event for event in run.follow(120) if event.note)
    assert note.status.reason.code is Code.LABELS
    assert "one comes nearest and lacks gpu" in note.note


@pytest.mark.long
def test_maintenance_takes_nothing_and_says_so(runners, client, wait_for):
    runner = runners.start()
    wait_for(lambda: states(client))
    assert order(runner.policy, "maintenance", "on", "--reason", "new\x1b[2J disk")[0] == 0
    wait_for(lambda: states(client) == [RunnerState.MAINTENANCE])
    run = client.run("noop")
    time.sleep(1)
    status = run.status()
    assert (status.state, status.reason.code) == (State.REQUESTED, Code.MAINTENANCE)
    assert "one is in maintenance (new" in status.outlook
    assert "\x1b" not in status.outlook
    code, said = order(runner.policy, "status", "--no-blas")
    assert code == 0
    assert "in maintenance: new\\x1b[2J disk; it takes no requests" in said
    assert f"{run.branch}: maintenance" in said

    # It outlives the runner.
    runner.stop()
    runner = runners.start()
    wait_for(lambda: states(client) == [RunnerState.MAINTENANCE])
    assert run.status().state is State.REQUESTED
    assert order(runner.policy, "maintenance", "off")[0] == 0
    assert run.wait(60).state is State.SUCCEEDED
    assert "it was not in maintenance" in order(runner.policy, "maintenance", "off")[1]


@pytest.mark.long
def test_drain_finishes_the_job_takes_no_other_and_ends_with_0(runners, client, presets, wait_for, tmp_path):
    go = tmp_path / "go"
    script = 'until [ -e "$0" ]; do sleep 0.1; done'
    folder = presets(naps={"steps": [{"argv": ["/bin/sh", "-c", script, str(go)]}]})
    asking = Client(client.git.directory, presets=folder)
    runner = runners.start(preset_folder=str(folder))
    first = asking.run("naps")
    wait_for(lambda: first.status().state.is_taken)
    second = asking.run("naps")
    code, said = order(runner.policy, "drain")
    assert (code, "takes no other request" in said) == (0, True), said
    go.touch()
    assert runner.process.wait(60) == 0
    assert first.status().state is State.SUCCEEDED
    assert second.status().state is State.REQUESTED
    assert states(client) == [RunnerState.STOPPED]
    # The next one serves again.
    runners.start(preset_folder=str(folder))
    assert second.wait(60).state is State.SUCCEEDED


def test_orders_that_cannot_be_read_let_nothing_be_taken_and_publish_no_path(tmp_path):
    orders = Orders(tmp_path)
    assert orders.now() == OperatorMode()
    for garbage in ("", "[]", '{"reason": 1}', "\xff"):
        (tmp_path / MAINTENANCE).write_text(garbage)
        found = orders.now()
        assert (found.state, found.takes_requests) == (RunnerState.MAINTENANCE, False)
        assert str(tmp_path) not in found.reason
    (tmp_path / MAINTENANCE).write_text(json.dumps({"reason": "\x1b" * 300}))
    assert len(orders.now().reason) == 200
    assert orders.resume() is True
    assert orders.resume() is False


def test_an_order_to_drain_is_for_one_process(tmp_path):
    orders = Orders(tmp_path)
    for other in ("", '{"pid": 1, "started": 0}'):
        (tmp_path / DRAIN).write_text(other)
        assert orders.now() == OperatorMode()
    orders.begin()
    assert not (tmp_path / DRAIN).exists()
    orders.drain(psutil.Process())
    orders.begin()
    assert orders.now().state is RunnerState.DRAINING


def test_drain_without_a_runner_is_an_error(runners):
    code, said = order(runners.policy(), "drain")
    assert code == 3
    assert "no runner serves with" in said


@pytest.mark.long
def test_once_takes_nothing_in_maintenance(runners, client):
    policy = runners.policy()
    run = client.run("noop")
    assert order(policy, "maintenance", "on", "--reason", "a test")[0] == 0
    code, said = order(policy, "once", "--branch", run.branch)
    assert code == 3
    assert "this runner is in maintenance: a test" in said
    assert run.status().state is State.REQUESTED


@pytest.mark.long
def test_a_runner_that_is_killed_is_missed(runners, client, wait_for):
    runner = runners.start(bus=SOON)
    wait_for(lambda: states(client))
    runner.stop(signal.SIGKILL)
    wait_for(lambda: not client.runners()[0].is_alive(time.time()))
    assert client.run("noop").status().reason.code is Code.NO_RUNNER


class TestPushes:
    """How many pushes it costs, with a runner in this process."""

    @pytest.fixture
    def pushed(self, monkeypatch):
        """What each push carried."""
        found = []
        call = Git.__call__

        def record(self, *args, **more):
            if args[0] == "push" and args[args.index("--") + 1] != "origin":  # that is the client
                found.append(args[args.index("--") + 2 :])
            return call(self, *args, **more)

        monkeypatch.setattr(Git, "__call__", record)
        return found

    def test_a_record_rides_on_what_is_pushed_anyway(self, keyed, client, bus, pushed):
        run = client.run("noop")
        with keyed.context() as context:
            context.announcer.begin()
            poller = Composer(context).poller()
            while poller.poll():
                context.announcer.announce_if_due()
            context.announcer.announce_if_due()
        assert context.announcer.pushes == 0
        assert len(pushed[0]) == 2, "it rides on the claim"
        assert {specs[0].partition(":")[2] for specs in pushed} == {f"refs/heads/{run.branch[:-1]}*"}
        record = record_on(bus)
        assert (record.state, record.busy_with) == (RunnerState.SERVING, None)

    @pytest.mark.long
    def test_alone_it_is_pushed_once_in_an_interval(self, keyed, pushed, monkeypatch):
        now = [1e6]
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        with keyed.context() as context:
            context.announcer.begin()
            for _ in range(3600):
                context.announcer.announce_if_due()
                now[0] += 1.0
        assert context.announcer.pushes == len(pushed) == 12

    def test_one_that_did_not_arrive_is_pushed_again_less_and_less_often(self, keyed, bus, monkeypatch):
        now, away = [1e6], bus.with_name("away")
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        with keyed.context() as context:
            context.announcer.begin()
            bus.rename(away)
            tries = []
            for _ in range(1000):
                before = context.announcer.pushes
                context.announcer.announce_if_due()
                tries += [now[0] - 1e6] * (context.announcer.pushes - before)
                now[0] += 1.0
            away.rename(bus)
            assert tries == [0, 10, 30, 70, 150, 310, 610, 910]
            now[0] += 300
            context.announcer.announce_if_due()
            assert record_on(bus).state is RunnerState.SERVING

    def test_it_leaves_the_budget_to_what_is_needed(self, keyed, pushed):
        with keyed.context(bus={"pushes_per_minute": 3}) as context:
            context.announcer.begin()
            context.bus.budget.spend()
            context.announcer.announce_if_due()
        assert pushed == []

    def test_without_an_interval_nothing_is_announced(self, keyed, client, pushed):
        client.run("noop")
        with keyed.context(bus={"presence_s": None}) as context:
            context.announcer.begin()
            Composer(context).poller().poll()
            context.announcer.announce_if_due()
            context.announcer.end()
        assert {len(specs) for specs in pushed} == {1}
        assert client.runners() == []

    def test_a_bus_that_refuses_the_record_still_takes_the_answer(self, keyed, client, bus, git):
        git(bus, "config", "receive.hideRefs", presence.REFS)
        run = client.run("noop")
        with keyed.context() as context:
            context.announcer.begin()
            poller = Composer(context).poller()
            while poller.poll():
                pass
            assert "hidden ref" in context.announcer.refused
            assert context.announcer.take() is None, "it is not tried again at once"
        assert run.status().state is State.SUCCEEDED

    def test_a_disk_that_is_full_keeps_no_answer_back(self, keyed, client, monkeypatch):
        def full(*_args, **_more):
            raise OSError(28, "No space left on device")

        run = client.run("noop")
        monkeypatch.setattr("runner.state.announcer.signed_presence", full)
        with keyed.context() as context:
            context.announcer.begin()
            poller = Composer(context).poller()
            while poller.poll():
                context.announcer.announce_if_due()
        assert run.status().state is State.SUCCEEDED

    @pytest.mark.parametrize("taken_back", ["draining", "maintenance", "fault", "presets", "stopped"])
    def test_what_takes_back_a_promise_needs_no_budget(self, keyed, bus, monkeypatch, taken_back):
        with keyed.context(bus={"pushes_per_minute": 6}) as context:
            context.announcer.begin()
            context.announcer.announce_if_due()
            for _ in range(9):
                context.bus.budget.spend()
            if taken_back == "fault":
                context.announcer.set_fault("cannot run python")
            elif taken_back == "presets":
                monkeypatch.setattr(type(context.machine.fitness), "presets", {})
            elif taken_back != "stopped":
                context.announcer.set_mode(OperatorMode(RunnerState(taken_back)))
            context.announcer.announce_if_due()
            if taken_back == "stopped":
                context.announcer.end()
            record = record_on(bus)
            assert context.announcer.pushes == 2
            expected = {"fault": record.reason == "cannot run python", "presets": record.presets == {}}
            assert expected.get(taken_back, record.state == taken_back)

    def test_what_promises_more_needs_budget_so_a_fault_that_comes_and_goes_costs_one_push(self, keyed, bus):
        with keyed.context(bus={"pushes_per_minute": 6}) as context:
            context.announcer.begin()
            context.announcer.announce_if_due()
            for _ in range(9):
                context.bus.budget.spend()
            for i in range(100):
                context.announcer.set_fault("cannot push" if i % 2 == 0 else "")
                context.announcer.announce_if_due()
            assert (context.announcer.pushes, record_on(bus).reason) == (2, "cannot push")

    def test_on_a_full_disk_a_record_that_was_made_before_says_so(self, keyed, bus, monkeypatch):
        def full(*_args, **_more):
            raise OSError(28, "No space left on device")

        with keyed.context() as context:
            context.announcer.begin()
            context.announcer.announce_if_due()
            with monkeypatch.context() as patch:
                patch.setattr("runner.state.announcer.signed_presence", full)
                context.announcer.set_fault("cannot write to state: No space left on device")
                for _ in range(3):
                    context.announcer.announce_if_due()
                assert (context.announcer.pushes, record_on(bus).reason) == (2, "it cannot write to its disk")
            context.announcer.set_fault("")
            context.announcer.announce_if_due()
            assert record_on(bus).reason == ""
            Git.isolated(bus)("fsck", "--connectivity-only")

    def test_a_fault_that_changes_is_no_news_and_stands_in_the_next_record(self, keyed, bus):
        with keyed.context() as context:
            context.announcer.begin()
            context.announcer.set_fault("cannot fetch")
            context.announcer.announce_if_due()
            context.announcer.set_fault("cannot push")
            context.announcer.announce_if_due()
            assert (context.announcer.pushes, record_on(bus).reason) == (1, "cannot fetch")
            context.announcer.set_mode(OperatorMode(RunnerState.DRAINING))
            context.announcer.announce_if_due()
            assert record_on(bus).reason == "cannot push"

    def test_objects_of_earlier_records_do_not_gather(self, keyed):
        with keyed.context() as context:
            context.announcer.begin()
            context.announcer.announce_if_due()
            before = context.bus.git.text("count-objects")
            for i in range(3):
                context.announcer.set_mode(OperatorMode(RunnerState.MAINTENANCE, f"{i}"))
                assert context.bus.push_record(context.announcer.take())
            assert context.bus.git.text("count-objects") == before


@pytest.mark.long
def test_a_record_while_a_job_runs_says_with_what(runners, client, presets, wait_for, bus, tmp_path):
    go = tmp_path / "go"
    script = 'until [ -e "$0" ]; do sleep 0.1; done'
    folder = presets(naps={"steps": [{"argv": ["/bin/sh", "-c", script, str(go)]}]})
    # The lease of a silent job is renewed every two seconds: with the first of these after five, the job is announced.
    runners.start(preset_folder=str(folder), bus={"lease_s": 6})
    wait_for(lambda: states(client))
    first = Client(client.git.directory, presets=folder).run("naps")
    wait_for(lambda: record_on(bus).busy_with == first.branch)
    second = Client(client.git.directory, presets=folder).run("naps")
    status = second.status()
    assert (status.reason.code, status.reason.message) == (
        Code.BUSY, f"one runs {first.branch}; it is next"
    )  # fmt: skip
    go.touch()
    assert second.wait(120).state is State.SUCCEEDED
    assert record_on(bus).busy_with is None
    told = json.loads(json.dumps(status.as_dict()))
    assert told["reason"]["code"] == "busy"
