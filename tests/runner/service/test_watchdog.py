"""A runner that hangs is noticed and ended, and one that is only slow, asleep or gone is left alone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from runner.policy import load_policy
from runner.state import heartbeat
from runner.state.heartbeat import Heartbeat
from tests import programs

LOOKS = heartbeat.SILENCE_S // heartbeat.EVERY_S


@pytest.fixture
def told():
    return []


@pytest.fixture
def hanging():
    """A process that does nothing, and its pulse as a runner would write it."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield child
    child.kill()
    child.wait()


def write_pulse(state, process: subprocess.Popen, **changes: object) -> None:
    import psutil  # noqa: PLC0415 - used here alone

    started = psutil.Process(process.pid).create_time()
    (state / heartbeat.FILE).write_text(json.dumps({"pid": process.pid, "started": started, **changes}))


def test_a_runner_without_a_sign_of_life_is_killed_after_so_many_looks(tmp_path, hanging, told):
    write_pulse(tmp_path, hanging)
    for _ in range(LOOKS):
        heartbeat.kill_if_hanging(tmp_path, told.append)
    assert (hanging.poll(), told) == (None, [])
    heartbeat.kill_if_hanging(tmp_path, told.append)
    assert hanging.wait(120) == -signal.SIGKILL
    assert "no sign of life for 15 minutes" in told[0]


def test_one_sign_of_life_starts_the_count_anew(tmp_path, hanging, told):
    write_pulse(tmp_path, hanging)
    for n in range(3 * LOOKS):
        if n % LOOKS == LOOKS - 1:
            os.utime(tmp_path / heartbeat.FILE, (n, n))
        heartbeat.kill_if_hanging(tmp_path, told.append)
    assert (hanging.poll(), told) == (None, [])


def test_an_old_sign_alone_is_none_against_it(tmp_path, hanging, told):
    """After a machine slept every file is old."""
    write_pulse(tmp_path, hanging)
    os.utime(tmp_path / heartbeat.FILE, (1, 1))
    heartbeat.kill_if_hanging(tmp_path, told.append)
    assert (hanging.poll(), told) == (None, [])


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"pid": "x", "started": 1}', '{"pid": 1, "started": 5}', None]
)
def test_nobody_else_is_killed(tmp_path, hanging, told, content):
    """The process id may have gone to somebody else, and the file may hold anything."""
    if content is None:
        write_pulse(tmp_path, hanging, started=1.0)
    else:
        (tmp_path / heartbeat.FILE).write_text(content)
    (tmp_path / "watchdog.json").write_text("no json")
    for _ in range(LOOKS + 2):
        heartbeat.kill_if_hanging(tmp_path, told.append)
    assert (hanging.poll(), told) == (None, [])


@pytest.mark.long
@pytest.mark.bus
def test_a_serving_runner_beats_and_a_stopped_one_is_hanging(runners, wait_for, told):
    runner = runners.start(presets=["noop"])
    state = load_policy(runner.policy).state
    first = (state / heartbeat.FILE).stat().st_mtime_ns
    wait_for(lambda: (state / heartbeat.FILE).stat().st_mtime_ns > first)
    runner.process.send_signal(signal.SIGSTOP)
    for _ in range(LOOKS + 1):
        heartbeat.kill_if_hanging(state, told.append)
    assert runner.process.wait(120) == -signal.SIGKILL
    again = runners.start(presets=["noop"])
    assert again.stop() == 0
    assert not (state / heartbeat.FILE).exists()


@pytest.mark.parametrize("name", ["{}/notify", "@kakeya-test-{}"], ids=["path", "abstract"])
def test_systemd_is_told_that_it_serves_lives_and_ends(tmp_path, monkeypatch, name):
    if sys.platform != "linux":
        pytest.skip("systemd and abstract sockets are Linux's")
    address = name.format(tmp_path if "/" in name else os.getpid())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind("\0" + address[1:] if address.startswith("@") else address)
        channel.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        made = Heartbeat()
        made.begin(tmp_path)
        made.end()
        assert [channel.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"STOPPING=1"]


def test_without_systemd_or_a_folder_it_beats_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nowhere"))
    made = Heartbeat()
    made.touch()
    made.begin(tmp_path)
    (tmp_path / heartbeat.FILE).unlink()
    monkeypatch.setattr(heartbeat, "INTERVAL_S", 0.0)
    made.touch()
    made.end()


@pytest.mark.long
@pytest.mark.bus
def test_the_command_looks_once(runners, hanging):
    policy = runners.policy("one")
    assert programs.run("--policy", policy, "watchdog").stderr == ""
    state = load_policy(policy).state
    state.mkdir()
    write_pulse(state, hanging)
    for _ in range(LOOKS):
        heartbeat.kill_if_hanging(state, print)
    assert "no sign of life" in programs.run("--policy", policy, "watchdog").stderr
    assert hanging.wait(120) == -signal.SIGKILL
