"""Two runners on one bus: a request that one of them cannot run is left to the other; the last one refuses it."""

from __future__ import annotations

import sys
import time
import venv
from contextlib import ExitStack

import pytest

from bridge.bus import history, presence
from bridge.bus.branch_names import new_nonce
from bridge.bus.wire import State
from bridge.system.git import Git
from runner.serve.compose import Composer
from runner.serve.loop import once
from tests.runner.conftest import utc

pytestmark = pytest.mark.bus

ALLOW = {"trust": {"code_request": "allow"}}
SIGNED = {"trust": {"code_request": "signed"}}
CODE = {"preset": "where", "code": "request", "params": {"path": "tests"}}


@pytest.fixture
def serving(host):
    """Open runners that have announced themselves; each call returns the poller of one."""
    with ExitStack() as stack:

        def begin(name, *, announced=True, **policy):
            context = stack.enter_context(host.context(name, **policy))
            if announced:
                context.announcer.begin()
                context.announcer.announce_if_due()
            return Composer(context).poller(), context

        yield begin


def stands(bus, branch):
    """Return the last state of a branch."""
    git = Git.isolated(bus)
    return history.read_branch(git, branch, git.text("rev-parse", f"refs/heads/{branch}"))


def old_nonce():
    return new_nonce(time.time() - 120)


CANNOT = {
    "no such preset": ({}, {"preset_folder": None}, {}),
    "not allowed": ({}, {"presets": ["count"]}, {}),
    "no setting": (
        {"env": {"KAKEYA_MAC_VERIFIER_PATH": "/x"}},
        {"env": {}},
        {"preset": "needs-setting"},
    ),
    "no interpreter": ({}, {"interpreter": "/nowhere/python3"}, {"preset": "snake"}),
    "other version of the interpreter": ({}, {"interpreter_version": "2.7"}, {"preset": "snake"}),
    "denies code": (ALLOW, {}, CODE),
    "does not trust the requester": (ALLOW, SIGNED, CODE),
    "takes no tree of this size": (ALLOW, {**ALLOW, "limits": {"tree_files": 1}}, CODE),
    "takes nothing of this age": ({}, {"limits": {"max_age_s": 60, "clock_skew_s": 0}}, {"nonce": old_nonce}),
}


@pytest.mark.long
@pytest.mark.rows(3)
@pytest.mark.parametrize("case", CANNOT)
def test_what_one_runner_cannot_run_is_left_to_one_that_can(serving, presets, requester, bus, host, case):
    presets(snake={"steps": [{"argv": ["${ENV:KAKEYA_MAC_PYTHON}", "-c", "pass"]}]})
    able, poor, asked = CANNOT[case]
    serving("able", **able)
    first, _ = serving("poor", **poor)
    asked = {key: value() if callable(value) else value for key, value in asked.items()}
    branch = requester.send(requester.manifest(**asked))

    for _ in range(3):
        assert not first.poll()
    assert stands(bus, branch).current_state is State.REQUESTED
    assert any(f"{branch}: left to able" in line or "handed on to able" in line for line in host.told)

    second, _ = serving("able-too", **able)
    second.poll()
    result = host.result(branch)
    assert (result.state, result.runner.id) == (State.SUCCEEDED, "able-too"), result.reason
    first.poll()
    assert host.result(branch) == result


@pytest.mark.long
@pytest.mark.parametrize(
    ("policy", "asked", "code"),
    [
        (SIGNED, CODE, "untrusted_code"),
        ({}, {"preset": "count", "params": {"n": 99}}, "out_of_range"),
        ({**ALLOW, "limits": {"tree_files": 1}}, CODE, "tree_too_large"),
    ],
)
def test_the_last_of_several_that_cannot_run_it_refuses_at_once(
    serving, requester, bus, host, policy, asked, code
):
    pollers = [serving(f"r{i}", **policy)[0] for i in range(2)]
    branch = requester.send(requester.manifest(**asked))
    for poller in pollers:
        poller.poll()

    result = host.result(branch)
    assert (result.state, result.reason.code) == (State.REFUSED, code)


def test_a_runner_that_is_given_one_branch_says_to_whom_it_leaves_it(serving, requester, host):
    serving("able")
    _, poor = serving("poor", presets=["noop"])
    branch = requester.send(requester.manifest())
    assert once(poor, branch) is State.REQUESTED
    assert host.told[-1] == f"{branch}: left to able, because this runner cannot run it"


def test_a_damaged_store_of_records_hides_no_runner(serving, requester, host, monkeypatch):
    now = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    poller, poor = serving("poor", presets=["noop"])
    refused = requester.send(requester.manifest())
    poller.poll()
    assert host.result(refused).reason.code == "preset_not_allowed"
    (poor.policy.state / "presences.git" / "HEAD").unlink()

    serving("able")
    now[0] += 3.0
    branch = requester.send(requester.manifest())
    for _ in range(2):
        poller.poll()
    assert host.result(branch) is None
    assert any(f"{branch}: left to able" in line for line in host.told)


def test_runners_with_the_same_definition_need_not_leave_it_to_each_other(serving, requester, host):
    serving("one")
    second, _ = serving("two")
    branch = requester.send(requester.manifest("count", params={"n": 99}))
    second.poll()
    assert host.result(branch).reason.code == "out_of_range"


@pytest.mark.long
@pytest.mark.rows(2)
@pytest.mark.rows(2)
@pytest.mark.parametrize(
    "other", ["stops", "lapses", "serves other branches", "lacks a label", "never announced"]
)
def test_without_a_live_runner_that_may_run_it_a_request_is_refused(
    serving, requester, host, monkeypatch, other
):
    now = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    bus = {"bus": {"patterns": ["elsewhere/*"]}} if other == "serves other branches" else {}
    _, able = serving("able", announced=other != "never announced", **bus)
    poller, _ = serving("poor", presets=["noop"])
    wanted = {"labels": ["gpu"]} if other == "lacks a label" else {}
    poller, _ = serving("labelled", presets=["noop"], labels=["gpu"]) if wanted else (poller, None)
    branch = requester.send(requester.manifest(**wanted))
    if other in ("stops", "lapses"):
        poller.poll()
        assert host.result(branch) is None
    if other == "stops":
        able.announcer.end()
    now[0] += 3.0
    poller.poll()
    now[0] += able.policy.bus.presence_s * presence.VALID_INTERVALS
    poller.poll()
    assert host.result(branch).reason.code == "preset_not_allowed"


def test_no_presence_record_delays_a_refusal_beyond_the_end_of_the_request(serving, requester, host):
    serving("able")
    poller, _ = serving("poor", presets=["noop"])
    branch = requester.send(requester.manifest(created_at=utc(-1000), expires_at=utc(-900)))
    poller.poll()
    assert host.result(branch).reason.code == "expired"


def test_where_runners_keys_are_listed_an_unsigned_record_delays_no_refusal(serving, requester, host, keyed):
    serving("able")
    keyed.key("poor")
    poller, _ = serving("poor", presets=["noop"], trust={"runners": [str(keyed.key("another"))]})
    branch = requester.send(requester.manifest())
    poller.poll()
    assert host.result(branch).reason.code == "preset_not_allowed"


def test_leaving_a_request_is_no_attempt_to_run_it(serving, requester, bus, host):
    serving("able", **ALLOW)
    poller, _ = serving("poor", **SIGNED)
    branch = requester.send(requester.manifest(**CODE))
    for _ in range(3):
        poller.poll()
    state = stands(bus, branch)
    assert state.token == 0
    assert state.state.detail.startswith("poor cannot run it: where runs the requester's own code")


@pytest.mark.long
@pytest.mark.parametrize(
    ("policy", "absent"),
    [
        ({}, {"where", "needs-setting", "absent"}),
        (ALLOW, {"needs-setting", "absent"}),
        ({"presets": ["touch", "absent"]}, {"where", "needs-setting", "absent", "count", "snake", "elsewhere"}),
        ({**ALLOW, "interpreter": "/nowhere/python3"}, {"needs-setting", "absent", "snake"}),
        (
            {**ALLOW, "env": {"KAKEYA_MAC_VERIFIER_PATH": "/x"}},
            {"absent"},
        ),
    ],
)  # fmt: skip
def test_a_presence_record_lists_what_the_runner_would_take(host, presets, policy, absent):
    presets(
        absent={"requires": ["a_module_that_is_not_there"], "steps": [{"argv": ["/bin/true"]}]},
        snake={"requires": ["json"], "steps": [{"argv": [sys.executable, "-c", "pass"]}]},
    )
    ours = {"touch", "count", "where", "needs-setting", "elsewhere", "absent", "snake"}
    with host.context(**policy) as context:
        context.machine.fitness.check()
        assert ours - context.machine.fitness.presets.keys() == absent


def test_a_module_that_is_installed_meanwhile_is_listed_again(host, presets, tmp_path):
    presets(snake={"requires": ["comes"], "steps": [{"argv": ["/bin/true"]}]})
    venv.create(tmp_path / "venv", symlinks=True, with_pip=False)
    (packages,) = (tmp_path / "venv").glob("lib/*/site-packages")
    with host.context(interpreter=str(tmp_path / "venv" / "bin" / "python3")) as context:
        context.machine.fitness.check()
        assert "snake" not in context.machine.fitness.presets
        (packages / "comes.py").touch()
        context.machine.fitness.check()
        assert "snake" in context.machine.fitness.presets


@pytest.mark.long
def test_beside_a_runner_that_cannot_run_them_all_requests_succeed(runners, client, wait_for):
    able = runners.start("able")
    runners.start("poor", presets=["kv-codec-rd"], bus={"poll_s": 0.05})
    wait_for(lambda: len(client.runners()) == 2)
    sent = [client.run("noop") for _ in range(4)]
    assert [run.wait(120).state for run in sent] == [State.SUCCEEDED] * 4
    assert {client.result(run.branch).runner.id for run in sent} == {"able"}
    assert able.stop() == 0
    last = client.run("noop")
    assert last.wait(120).state is State.REFUSED


def test_runners_count_those_that_announce_a_job(serving, monkeypatch):
    monkeypatch.setattr("runner.state.announcer._BUSY_S", 0.0)
    monkeypatch.setattr("runner.bus.others._LOOK_S", 0.0)
    _, one = serving("one")
    _, two = serving("two")

    assert two.others.count_busy() == 0
    one.announcer.set_branch("mac-bridge/touch-1795977574-095c2dde9cd2")
    assert one.bus.push_record(one.announcer.take())

    assert two.others.count_busy() == 1
    assert one.others.count_busy() == 0
