"""The client's verbs over real git and real runner processes."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest

from bridge.bus import wire
from bridge.bus.remote import Remote
from bridge.bus.wire import State
from bridge.client import Client
from bridge.errors import InfrastructureError, RefusedError, UsageError, WaitTimeout

pytestmark = pytest.mark.bus

TALK = "import time; [(print('line', i, flush=True), time.sleep(0.4)) for i in range(3)]"
PYTHON = "${ENV:KAKEYA_MAC_PYTHON}"


@pytest.fixture
def jobs(presets):
    return str(
        presets(
            talk={"steps": [{"argv": [PYTHON, "-c", TALK]}]},
            sleep={"steps": [{"argv": [PYTHON, "-c", "import time; time.sleep(60)"]}]},
            fail={"steps": [{"argv": [PYTHON, "-c", "print('no'); raise SystemExit(3)"]}]},
            slow={"steps": [{"argv": [PYTHON, "-c", "import time; time.sleep(60)"]}], "timeout_s": 1},
            noop={"steps": [{"argv": ["/bin/echo", "done"]}]},
        )
    )


@pytest.fixture
def served(clone, runners, jobs) -> Client:
    """A client with a runner at the other end."""
    runners.start(preset_folder=jobs)
    return Client(clone, presets=jobs)


@pytest.mark.long
def test_the_verbs_of_a_request_that_succeeds(served, tmp_path):
    run = served.run("noop")
    status = run.wait(120)
    assert (status.state, status.exit_code, status.preset) == (State.SUCCEEDED, 0, "noop")
    assert run.status().state is State.SUCCEEDED
    assert run.logs() == "done\n"
    assert run.verify().holds
    assert (run.fetch(tmp_path / "out").folder / wire.RESULT).exists()
    assert [found.branch for found in served.list()] == [run.branch]
    assert run.cancel().state is State.SUCCEEDED


@pytest.mark.long
def test_following_yields_states_in_order_and_the_whole_log_once(served):
    events = list(served.run("talk").follow(120))
    states = [event.status.state for event in events]
    assert states[0] is State.REQUESTED
    assert states[-1] is State.SUCCEEDED
    order = list(State)
    assert [order.index(state) for state in states] == sorted(order.index(state) for state in states)
    assert "".join(event.log for event in events) == "line 0\nline 1\nline 2\n"
    assert sum(1 for event in events if event.log) > 1


@pytest.mark.long
def test_the_log_can_be_read_while_the_job_runs(served, wait_for):
    run = served.run("talk")
    wait_for(lambda: "line 0" in run.logs())
    assert run.status().state in (State.RUNNING, State.SUCCEEDED)
    run.wait(120)


@pytest.mark.long
@pytest.mark.parametrize(
    ("preset", "state", "code"), [("fail", State.FAILED, 1), ("slow", State.TIMED_OUT, 124)]
)
def test_a_job_that_ends_badly_says_how(served, preset, state, code):
    run = served.run(preset)
    status = run.wait(120)
    assert (status.state, status.exit_code) == (state, code)
    assert status.detail
    assert run.verify().holds


@pytest.mark.long
def test_a_running_job_is_cancelled(served, wait_for):
    run = served.run("sleep")
    wait_for(lambda: run.status().state is State.RUNNING)
    told = "the requester cancelled (not needed); waits for the runner to stop the job"
    assert run.cancel("not needed").detail == told
    status = run.wait(120)
    assert status.detail == "the requester cancelled it: not needed"
    assert (status.state, status.exit_code) == (State.CANCELLED, 6)
    assert run.verify().holds


@pytest.mark.long
def test_a_request_that_nobody_took_is_cancelled_before_it_runs(clone, jobs, runners):
    client = Client(clone, presets=jobs)
    run = client.run("noop")
    assert run.cancel().detail == "cancelled by the requester before a runner took it"
    assert run.cancel().detail == "cancelled by the requester before a runner took it"
    runners.start(preset_folder=jobs)
    assert run.wait(120).state is State.CANCELLED


@pytest.mark.long
def test_a_request_that_the_runner_does_not_take_is_refused_with_the_reason(clone, runners):
    runners.start(presets=["other-*"])
    status = Client(clone).run("noop").wait(120)
    assert (status.state, status.exit_code) == (State.REFUSED, 4)
    assert "is not allowed by the runner one" in status.detail


@pytest.mark.long
def test_two_clients_at_once_get_their_own_answers(served, bus, tmp_path, git, jobs):
    git(tmp_path, "clone", "--quiet", str(bus), "second")
    second = Client(tmp_path / "second", presets=jobs)
    found: dict[str, State] = {}

    def ask(client: Client) -> None:
        run = client.run("noop")
        found[run.branch] = run.wait(60).state

    threads = [threading.Thread(target=ask, args=(client,)) for client in (served, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(found.values()) == [State.SUCCEEDED, State.SUCCEEDED]
    assert {status.branch for status in second.list()} == set(found)


def test_a_wait_without_a_runner_ends_in_time_and_says_so(client):
    begun = time.monotonic()
    with pytest.raises(WaitTimeout, match=r"no runner took .* within 0\.3 s") as caught:
        client.run("noop").wait(0.3)
    assert time.monotonic() - begun < 5
    assert (int(caught.value.exit_code), caught.value.code) == (3, "no_answer_in_time")


@pytest.mark.long
def test_a_wait_for_a_job_that_is_not_done_says_where_it_stands(served, wait_for):
    run = served.run("sleep")
    wait_for(lambda: run.status().state is State.RUNNING)
    with pytest.raises(WaitTimeout, match="is still running"):
        run.wait(0.2)
    run.cancel()
    run.wait(120)


@pytest.mark.long
def test_a_branch_that_is_rewritten_while_it_is_followed_is_refused(client, git, bus):
    run = client.run("noop")
    events = run.follow(120)
    assert next(events).status.state is State.REQUESTED
    git(bus, "update-ref", f"refs/heads/{run.branch}", "refs/heads/main")
    with pytest.raises(RefusedError, match="was rewritten"):
        list(events)


def test_an_unknown_preset_or_a_bad_parameter_sends_nothing(client, git, bus):
    wrong = (("nop", {}), ("noop", {"n": 1}), ("kv-codec-rd", {"n_vectors": True}), ("pytest-path", {}))
    for preset, params in wrong:
        with pytest.raises(UsageError):
            client.run(preset, params)
    assert git(bus, "for-each-ref", "refs/heads/mac-bridge") == ""


def test_the_last_request_is_the_default(client):
    client.run("noop")
    time.sleep(1.1)  # nonces have whole seconds
    last = client.run("noop")
    assert client.find().branch == last.branch


def test_a_request_is_found_by_branch_nonce_or_a_part(client):
    run = client.run("noop")
    nonce = run.status().nonce
    for name in (run.branch, nonce, nonce[-8:]):
        assert client.find(name).branch == run.branch


def test_a_request_of_another_clone_is_found_on_the_remote(client, bus, tmp_path, git):
    run = client.run("noop")
    git(tmp_path, "clone", "--quiet", str(bus), "second")
    assert Client(tmp_path / "second").find(run.status().nonce).branch == run.branch


def test_a_name_that_fits_several_requests_is_not_guessed(client):
    client.run("noop")
    client.run("noop")
    with pytest.raises(UsageError, match="2 requests fit 'noop'"):
        client.find("noop")


@pytest.mark.parametrize("name", ["nothing-like-it", ""])
def test_a_name_that_fits_none_is_told(client, name):
    with pytest.raises(UsageError, match="no request fits"):
        client.find(name)


def test_without_a_request_there_is_no_last_one(client):
    with pytest.raises(UsageError, match="no request was sent"):
        client.find()


def test_a_request_that_is_not_on_the_remote_is_told(client):
    with pytest.raises(UsageError, match="there is no request") as caught:
        client.status("mac-bridge/noop-1700000000-abc123")
    assert caught.value.code == "no_such_request"


def test_a_request_without_an_answer_has_nothing_to_fetch(client, tmp_path):
    run = client.run("noop")
    with pytest.raises(InfrastructureError, match="no answer yet") as caught:
        run.fetch(tmp_path / "out")
    assert caught.value.code == "no_answer_yet"
    assert run.logs() == ""


@pytest.mark.long
def test_the_list_is_newest_first_and_limited(client):
    first = client.run("noop").branch
    time.sleep(1.1)
    second = client.run("noop").branch
    assert [status.branch for status in client.list()] == [second, first]
    assert [status.branch for status in client.list(1)] == [second]


def test_branches_that_are_no_requests_are_not_listed(client, git, bus):
    git(bus, "update-ref", "refs/heads/mac-bridge/something", "refs/heads/main")
    assert client.list() == []


def sent(client: Client) -> list[str]:
    return client.sent.branches()


@pytest.mark.long
def test_forgetting_spares_what_is_young_and_what_has_no_answer(served, git, bus):
    done = served.run("noop")
    done.wait(120)
    waiting = served.run("noop", labels=["elsewhere"])
    assert served.sweep(timedelta(hours=1), remote=True).gone == []
    assert len(sent(served)) == 2

    time.sleep(1.1)
    assert served.sweep(timedelta(0), remote=True, dry_run=True).gone == sorted([done.branch, waiting.branch])
    assert len(sent(served)) == 2
    assert served.sweep(timedelta(0)).gone == sorted([done.branch, waiting.branch])
    assert sent(served) == []
    assert git(bus, "rev-parse", f"refs/heads/{done.branch}")

    swept = served.sweep(timedelta(0), remote=True)
    assert (swept.gone, swept.others) == ([], 1), "nothing shows any more that it was sent from here"
    assert served.sweep(timedelta(0), remote=True, everybody=True).gone == [done.branch]
    assert [status.branch for status in served.list()] == [waiting.branch]


def test_a_branch_that_never_rests_cannot_be_cancelled(client, monkeypatch):
    run = client.run("noop")
    monkeypatch.setattr(Remote, "push", lambda *_args, **_more: False)
    with pytest.raises(InfrastructureError, match="changed faster"):
        run.cancel()


@pytest.mark.long
def test_a_remote_that_stops_answering_for_a_while_does_not_end_a_wait(client, bus, runners, monkeypatch):
    monkeypatch.setattr("bridge.requests.follow.LONGEST_POLL_S", {True: 0.05, False: 0.05})
    run = client.run("noop")
    events = run.follow(timeout=60)
    next(events)
    away = bus.rename(bus.with_name("away"))
    threading.Timer(0.3, lambda: away.rename(bus)).start()
    threading.Timer(0.6, runners.start).start()

    states = [event.status.state for event in events]

    assert states[-1] is State.SUCCEEDED


def test_a_remote_that_never_answered_is_told_at_once(client, bus):
    run = client.run("noop")
    bus.rename(bus.with_name("away"))
    began = time.monotonic()

    with pytest.raises(InfrastructureError):
        run.wait(timeout=60)

    assert time.monotonic() - began < 30
