"""A runner that hangs is noticed and ended, and one that is only slow, asleep or gone is left alone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from runner.policy import load_policy
from runner.service import watchdog
from runner.service.watchdog import Watchdog
from runner.state import sign_of_life
from runner.state.sign_of_life import Pulse

LOOKS = sign_of_life.SILENCE_S // watchdog.EVERY_S


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
    (state / sign_of_life.FILE).write_text(json.dumps({"pid": process.pid, "started": started, **changes}))


def test_a_runner_without_a_sign_of_life_is_killed_after_so_many_looks(tmp_path, hanging, told):
    write_pulse(tmp_path, hanging)
    for _ in range(LOOKS):
        Watchdog(tmp_path, told.append).look()
    assert (hanging.poll(), told) == (None, [])
    Watchdog(tmp_path, told.append).look()
    assert hanging.wait(10) == -signal.SIGKILL
    assert "no sign of life for 15 minutes" in told[0]


def test_one_sign_of_life_starts_the_count_anew(tmp_path, hanging, told):
    write_pulse(tmp_path, hanging)
    for n in range(3 * LOOKS):
        if n % LOOKS == LOOKS - 1:
            os.utime(tmp_path / sign_of_life.FILE, (n, n))
        Watchdog(tmp_path, told.append).look()
    assert (hanging.poll(), told) == (None, [])


def test_an_old_sign_alone_is_none_against_it(tmp_path, hanging, told):
    """After a machine slept every file is old."""
    write_pulse(tmp_path, hanging)
    os.utime(tmp_path / sign_of_life.FILE, (1, 1))
    Watchdog(tmp_path, told.append).look()
    assert (hanging.poll(), told) == (None, [])


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"pid": "x", "started": 1}', '{"pid": 1, "started": 5}', None]
)
def test_nobody_else_is_killed(tmp_path, hanging, told, content):
    """The process id may have gone to somebody else, and the file may hold anything."""
    if content is None:
        write_pulse(tmp_path, hanging, started=1.0)
    else:
        (tmp_path / sign_of_life.FILE).write_text(content)
    (tmp_path / "watchdog.json").write_text("no json")
    for _ in range(LOOKS + 2):
        Watchdog(tmp_path, told.append).look()
    assert (hanging.poll(), told) == (None, [])


@pytest.mark.long
@pytest.mark.bus
def test_a_serving_runner_beats_and_a_stopped_one_is_hanging(runners, wait_for, told):
    runner = runners.start(presets=["noop"])
    state = load_policy(runner.policy).state
    first = (state / sign_of_life.FILE).stat().st_mtime_ns
    wait_for(lambda: (state / sign_of_life.FILE).stat().st_mtime_ns > first)
    runner.process.send_signal(signal.SIGSTOP)
    for _ in range(LOOKS + 1):
        Watchdog(state, told.append).look()
    assert runner.process.wait(10) == -signal.SIGKILL
    again = runners.start(presets=["noop"])
    assert again.stop() == 0
    assert not (state / sign_of_life.FILE).exists()


@pytest.mark.parametrize("name", ["{}/notify", "@kakeya-test-{}"], ids=["path", "abstract"])
def test_systemd_is_told_that_it_serves_lives_and_ends(tmp_path, monkeypatch, name):
    if sys.platform != "linux":
        pytest.skip("systemd and abstract sockets are Linux's")
    address = name.format(tmp_path if "/" in name else os.getpid())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind("\0" + address[1:] if address.startswith("@") else address)
        channel.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        made = Pulse()
        made.begin(tmp_path)
        made.end()
        assert [channel.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"STOPPING=1"]


def test_without_systemd_or_a_folder_it_beats_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nowhere"))
    made = Pulse()
    made.beat()
    made.begin(tmp_path)
    (tmp_path / sign_of_life.FILE).unlink()
    monkeypatch.setattr(sign_of_life, "INTERVAL_S", 0.0)
    made.beat()
    made.end()


@pytest.fixture
def listener(tmp_path):
    """GitHub's runner as far as it is looked at: a program that holds a connection or not, and svc.sh."""
    folder = tmp_path / "actions"
    (folder / "bin").mkdir(parents=True)
    for program in ("Runner.Listener", "Runner.Worker"):
        subprocess.run(["cp", os.path.realpath("/bin/sleep"), str(folder / "bin" / program)], check=True)
    service = folder / "svc.sh"
    service.write_text('#!/bin/sh\necho "$1" >>svc.log\n')
    service.chmod(0o755)
    started = []

    def start(program: str = "Runner.Listener", connected: socket.socket | None = None):
        fds = (connected.fileno(),) if connected else ()
        child = subprocess.Popen([str(folder / "bin" / program), "600"], pass_fds=fds)
        started.append(child)
        return child

    yield folder, start
    for child in started:
        child.kill()
        child.wait()


def done_with(folder) -> list[str]:
    log = folder / "svc.log"
    return log.read_text().split() if log.exists() else []


def test_a_listener_that_ended_is_started(tmp_path, listener, told):
    folder, _ = listener
    Watchdog(tmp_path, told.append, folder).look()
    assert done_with(folder) == []
    Watchdog(tmp_path, told.append, folder).look()
    assert done_with(folder) == ["stop", "start"]
    assert "does not run: it is started" in told[0]


def test_a_listener_without_a_connection_is_ended_and_started(tmp_path, listener, told):
    folder, start = listener
    child = start()
    for _ in range(LOOKS):
        Watchdog(tmp_path, told.append, folder).look()
    assert (child.poll(), done_with(folder)) == (None, [])
    Watchdog(tmp_path, told.append, folder).look()
    assert child.wait(10) == -signal.SIGKILL
    assert done_with(folder) == ["stop", "start"]


@pytest.mark.parametrize("how", ["connected", "working"])
def test_a_listener_that_waits_or_works_is_left_alone(tmp_path, listener, told, how):
    folder, start = listener
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as line,
    ):
        child = start(connected=line if how == "connected" else None)
        if how == "working":
            start("Runner.Worker")
        time.sleep(0.2)
        for _ in range(LOOKS + 2):
            Watchdog(tmp_path, told.append, folder).look()
        assert (child.poll(), done_with(folder)) == (None, [])


@pytest.mark.long
@pytest.mark.bus
def test_the_command_looks_once(runners, listener, tmp_path):
    folder, _ = listener
    policy = runners.policy("one")
    argv = [
        sys.executable,
        "-P",
        "-m",
        "runner",
        "--policy",
        str(policy),
        "watchdog",
        "--listener",
        str(folder),
    ]
    assert subprocess.run(argv, check=True, capture_output=True, cwd=tmp_path).stderr == b""
    load_policy(policy).state.mkdir()
    for _ in range(2):
        done = subprocess.run(argv, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert "GitHub's listener" in done.stderr
    assert done_with(folder) == ["stop", "start"]
