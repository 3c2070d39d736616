"""A request that was cancelled or has expired before a runner took it ends, whoever serves, and all commands agree."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest

from bridge.bus.branch_names import new_nonce
from bridge.bus.wire import State
from bridge.errors import WaitTimeout
from bridge.requests.waiting import Code
from runner.serve.compose import Composer
from tests.runner.conftest import utc

pytestmark = pytest.mark.bus


def sent(client, **options):
    """Send a request that no runner here has the label for."""
    return client.run("noop", labels=["gpu"], **options)


@pytest.fixture
def at_once(monkeypatch):
    """Do not wait for a runner that might confirm."""
    monkeypatch.setattr("bridge.requests.follow.CONFIRM_S", 0.0)


def test_a_cancelled_request_is_confirmed_by_a_runner_that_could_not_run_it(client, keyed):
    run = sent(client)
    run.cancel("not needed")
    keyed.handle()
    assert client.result(run.branch).state is State.CANCELLED


@pytest.mark.usefixtures("at_once")
def test_without_any_runner_all_commands_say_that_it_is_cancelled(client):
    run = sent(client)
    cancelled = run.cancel()
    assert (cancelled.state, cancelled.exit_code, cancelled.answered) == (State.CANCELLED, 6, False)
    assert run.wait().state is State.CANCELLED
    assert run.status().state is State.CANCELLED
    (listed,) = client.list()
    assert (listed.state, listed.reason) == (State.CANCELLED, None)
    assert client.sweep(timedelta(seconds=-1), remote=True).gone == [run.branch]
    assert client.list() == []


@pytest.mark.long
def test_a_request_for_other_labels_that_expires_is_refused_by_any_runner(requester, host):
    with host.context() as context:
        poller = Composer(context).poller()
        for lifetime in (3, 30, 90):  # more if this machine is too busy to look at it before it expires
            ends = int(time.time()) + lifetime
            branch = requester.send(requester.manifest(expires_at=utc(lifetime), labels=["gpu"]))
            is_answered = poller.poll()
            if time.time() < ends:
                break
        assert not is_answered
        assert host.result(branch) is None
        time.sleep(max(0.0, ends + 1.1 - time.time()))
        poller.poll()
    assert host.result(branch).reason.code == "expired"


def test_a_runner_that_was_just_started_does_not_run_what_has_expired(requester, host):
    branch = requester.send(requester.manifest(created_at=utc(-60), expires_at=utc(-2)))
    host.handle()
    assert host.result(branch).reason.code == "expired"
    assert not host.ran.exists()


@pytest.mark.long
@pytest.mark.usefixtures("at_once")
def test_without_any_runner_all_commands_say_that_it_has_expired(client):
    run = client.run("noop", lifetime=timedelta(seconds=1))
    time.sleep(2.1)
    with pytest.raises(WaitTimeout, match="expired before a runner took it"):
        run.wait()
    reason = run.status().reason
    assert (reason.code, reason.is_stuck, reason.fix) == (Code.EXPIRED, True, "Send it again: kakeya run.")
    (listed,) = client.list()
    assert listed.reason.code is Code.EXPIRED
    assert client.sweep(timedelta(seconds=-1), remote=True).gone == [run.branch]


def test_a_clock_that_is_ahead_deletes_nothing_that_may_still_run(client, requester, monkeypatch):
    old = {"nonce": new_nonce(time.time() - 7200), "created_at": utc(-7200), "expires_at": utc(86_400)}
    older, newer = requester.send(requester.manifest("noop", **old)), client.run("noop").branch

    class Ahead(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=400)

    with monkeypatch.context() as patch:
        patch.setattr("bridge.requests.answered.sweep.datetime", Ahead)
        real = time.time
        patch.setattr(time, "time", lambda: real() + 400 * 86_400)
        swept = client.sweep(timedelta(hours=1), remote=True)
    assert {status.branch for status in client.list()} == {older, newer}
    assert (swept.gone, swept.unanswered) == ([], 1)
