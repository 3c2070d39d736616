"""Faults of the host: none is held against a request, and a runner that is no longer what it was ends."""

from __future__ import annotations

import shutil
import signal
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import bridge
import presets as installed_presets
import runner
from bridge.bus.wire import State
from bridge.client import Client
from bridge.errors import RefusedError
from bridge.requests.waiting import Code
from runner.serve.compose import Composer
from runner.state.activity import read_facts

pytestmark = pytest.mark.bus


@pytest.fixture
def using(presets, tmp_path):
    """A preset that runs the interpreter of the policy, and that interpreter: a link that a test can move."""
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    steps = [{"argv": ["${ENV:KAKEYA_MAC_PYTHON}", "-c", "pass"]}]
    return {"preset_folder": str(presets(use={"steps": steps})), "interpreter": str(python)}, python


@pytest.mark.long
@pytest.mark.parametrize("has_run", [True, False], ids=["after a job", "before the first job"])
def test_an_interpreter_that_was_away_is_waited_for(host, requester, wait_for, using, has_run):
    policy, python = using
    away = python.with_name("away")
    with host.context(**policy) as context:
        poller = Composer(context).poller()
        if has_run:
            first = requester.send(requester.manifest("use"))
            wait_for(lambda: poller.poll() and host.result(first))
        else:
            context.machine.fitness.check()
        python.rename(away)
        branch = requester.send(requester.manifest("use"))
        assert not poller.poll()
        assert any(
            "waits until this host can run it again" in one["why"]
            for one in context.operator.status_file.facts.queue
        )
        away.rename(python)
        wait_for(lambda: poller.poll() and host.result(branch))
    assert host.result(branch).state is State.SUCCEEDED


@pytest.mark.long
def test_a_supervisor_that_cannot_start_is_held_against_no_request(host, requester, wait_for, monkeypatch):
    branch = requester.send(requester.manifest())
    with host.context() as context:
        poller = Composer(context).poller()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", "/usr/bin/false")
            wait_for(lambda: not poller.poll() and any("less and less often" in line for line in host.told))
        assert host.result(branch) is None
        wait_for(lambda: poller.poll() and host.result(branch))
    assert host.result(branch).state is State.SUCCEEDED


def test_a_program_that_does_not_exist_is_told_to_the_requester(host, requester, presets):
    folder = presets(absent={"steps": [{"argv": ["/no/such/program"]}]})
    branch = requester.send(requester.manifest("absent"))

    assert host.answer(branch, preset_folder=str(folder)).reason.code == "not_started"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """An installation of the runner that a test can change."""
    folder = tmp_path / "installed"
    ignore = shutil.ignore_patterns("__pycache__")
    for package in (bridge, runner, installed_presets):
        place = Path(package.__path__[0])
        shutil.copytree(place, folder / place.name, ignore=ignore)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


@pytest.mark.long
@pytest.mark.parametrize("harm", ["gone", "replaced"])
def test_a_runner_whose_installation_changed_takes_nothing_and_ends(
    runners, client, installed, wait_for, harm
):
    process = runners.start()
    (installed / "runner").rename(installed / "away")
    if harm == "replaced":
        shutil.copytree(installed / "away", installed / "runner")
    sent = client.run("noop")
    assert process.process.wait(60) == 3
    assert "this installation changed while the runner served" in process.said()
    assert sent.status().state is State.REQUESTED

    if harm == "gone":
        (installed / "away").rename(installed / "runner")
    runners.start()
    assert sent.wait(timeout=60).state is State.SUCCEEDED


@pytest.mark.long
@pytest.mark.parametrize("moment", ["idle", "in a job"])
def test_a_runner_whose_state_folder_is_gone_ends(runners, client, presets, wait_for, tmp_path, moment):
    began = tmp_path / "began"
    folder = presets(long={"steps": [{"argv": ["/bin/sh", "-c", f"touch {began}; sleep 600"]}]})
    process = runners.start(preset_folder=str(folder))
    if moment == "in a job":
        Client(client.git.directory, presets=folder).run("long")
        wait_for(began.exists)
    (runners.folder / "state-one").rename(tmp_path / "away")

    assert process.process.wait(60) == 3
    assert "no longer has its state folder" in process.said()


@pytest.mark.long
@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_each_ending_signal_hands_a_job_back(runners, client, presets, wait_for, tmp_path, signum):
    began = tmp_path / "began"
    folder = presets(long={"steps": [{"argv": ["/bin/sh", "-c", f"touch {began}; sleep 600"]}]})
    process = runners.start(preset_folder=str(folder))
    sent = Client(client.git.directory, presets=folder).run("long")
    wait_for(began.exists)

    assert process.stop(signum) == 0
    status = sent.status()
    assert (status.state, status.detail) == (State.REQUESTED, "handed back: the runner was stopped")


def test_a_job_that_could_not_be_handed_back_is_resumed_at_once(
    runners, client, presets, wait_for, tmp_path, bus
):
    began, away = tmp_path / "began", bus.with_name("away.git")
    script = f"[ -e {began} ] || {{ touch {began}; sleep 600; }}"
    folder = presets(long={"steps": [{"argv": ["/bin/sh", "-c", script]}]})
    settings = {"preset_folder": str(folder), "bus": {"lease_s": 600}}
    process = runners.start(**settings)
    sent = Client(client.git.directory, presets=folder).run("long")
    wait_for(began.exists)
    bus.rename(away)

    assert process.stop() == 0
    assert f"{sent.branch}: could not be handed back" in process.said()
    away.rename(bus)
    assert sent.status().state.is_taken
    process = runners.start(**settings)
    assert sent.wait(timeout=120).state is State.SUCCEEDED
    assert "under this one's id" not in process.said()


@pytest.fixture
def declining(bus):
    """Let the bus refuse changes of request branches and say why; returns a function that ends that."""
    hook = bus / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    is_new = '[ "$2" = 0000000000000000000000000000000000000000 ]'
    hook.write_text(
        f'#!/bin/sh\ncase "$1" in refs/heads/*) {is_new} || {{ echo "branches are frozen"; exit 1; }};; esac\n'
    )
    hook.chmod(0o755)
    return hook.unlink


@pytest.mark.long
def test_what_a_host_says_when_it_refuses_reaches_log_status_and_requester(
    runners, client, declining, wait_for
):
    process = runners.start()
    sent = client.run("noop")
    wait_for(lambda: "the claim could not be pushed: remote: branches are frozen" in process.said())
    # On a busy machine, other doubts may come first.
    wait_for(lambda: "cannot push to the bus: remote: branches are frozen" in sent.status().reason.said)
    reason = sent.status().reason
    assert reason.code is Code.DOUBT
    assert reason.runner == "one"
    assert "branches are frozen" in read_facts(runners.folder / "state-one").trouble["message"]
    with pytest.raises(RefusedError, match="branches are frozen") as caught:
        sent.cancel()
    assert "--prefix" not in caught.value.fix

    declining()
    assert sent.wait(timeout=120).state is State.SUCCEEDED
    wait_for(lambda: read_facts(runners.folder / "state-one").trouble is None)


def test_a_host_that_refuses_deletions_is_quoted_to_whoever_cleans_up(host, requester, client, bus, git):
    branch = requester.send(requester.manifest())
    host.handle()
    git(bus, "config", "receive.denyDeletes", "true")

    with pytest.raises(RefusedError, match="deletion prohibited"):
        client.sweep(timedelta(seconds=-60), remote=True, everybody=True)
    with host.context(retention={"days": 1}) as context:
        assert context.bus.delete(context.bus.fetch()) == []
        assert "deletion prohibited" in context.bus.deletion_fault
    assert host.result(branch).state is State.SUCCEEDED
