"""Signals that end a program while a server keeps the git that it runs waiting."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from tests.attacks import servers

pytestmark = pytest.mark.bus

TERM, INT, HUP = signal.SIGTERM, signal.SIGINT, signal.SIGHUP


@pytest.fixture(autouse=True)
def hang_up_ends_a_program():
    """Let no program inherit that SIGHUP is ignored, as under nohup."""
    before = signal.signal(HUP, signal.SIG_DFL)
    yield
    signal.signal(HUP, before)


@pytest.fixture
def silent():
    """A server that takes a request and says nothing."""
    over = threading.Event()
    server = servers.Http(lambda _: over.wait(600))
    yield server
    over.set()
    server.close()


@pytest.fixture
def program(clone, git, silent, tmp_path, wait_for):
    """Start `kakeya` in the clone, and return it once its git waits for the server, with all that it started."""
    started = []

    def start(*args, before=None):
        argv = [sys.executable, "-P", "-m", "bridge", *args]
        with (tmp_path / "said").open("w") as said:
            process = subprocess.Popen(
                argv, cwd=clone, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said,
                start_new_session=True,
            )  # fmt: skip
        started.append(process)
        if before:
            before(process)
        git(clone, "remote", "set-url", "origin", f"{silent.url}/bus.git")
        wait_for(lambda: silent.asked, timeout=120)
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) > 1
        return process, family

    yield start
    for process in started:
        process.kill()
        for pipe in (process.stdin, process.stdout):
            pipe.close()
        process.wait(120)


def ended(family):
    return not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in family)


def check(process, family, wait_for, *codes):
    assert process.wait(120) in codes
    wait_for(lambda: ended(family), timeout=120)


@pytest.mark.rows(2)
@pytest.mark.parametrize(("signum", "code"), [(TERM, -TERM), (HUP, -HUP), (INT, 130)])
@pytest.mark.parametrize("args", [("list",), ("run", "noop")])
def test_row_95_a_command_takes_along_the_git_that_waits(
    clone, git, silent, program, wait_for, args, signum, code
):
    git(clone, "remote", "set-url", "origin", f"{silent.url}/bus.git")
    process, family = program(*args)

    process.send_signal(signum)

    check(process, family, wait_for, code)


@pytest.mark.long
@pytest.mark.parametrize(("signum", "code"), [(TERM, -TERM), (INT, 130)])
def test_row_95_the_web_server_takes_along_the_git_that_waits(program, wait_for, tmp_path, signum, code):
    pytest.importorskip("starlette", reason="needs the extra [web]")

    def serves(process):
        wait_for(lambda: "the bus is at" in (tmp_path / "said").read_text(), timeout=120)

    process, family = program("web", "--port", "0", "--poll", "0.1", before=serves)

    process.send_signal(signum)

    check(process, family, wait_for, code)


def asks(process):
    """Ask an MCP server for the requests on the bus."""
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    for message in (
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "kakeya_list", "arguments": {}}},
    ):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        process.stdin.flush()
        if message.get("id") == 1:
            assert process.stdout.readline()


@pytest.mark.rows(1)
@pytest.mark.parametrize(("end", "code"), [(TERM, -TERM), (INT, 130), ("close", 0)])
def test_row_95_the_mcp_server_takes_along_the_git_that_waits(
    clone, git, silent, program, wait_for, end, code
):
    pytest.importorskip("mcp", reason="needs the extra [mcp]")
    git(clone, "remote", "set-url", "origin", f"{silent.url}/bus.git")
    process, family = program("mcp", before=asks)

    if end == "close":
        process.stdin.close()
    else:
        process.send_signal(end)

    check(process, family, wait_for, code)


def test_a_signal_that_is_ignored_stays_ignored():
    code = (
        "import signal; from bridge.system import signals; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
        "signals.end_on_signals(); assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN; "
        "assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL"
    )

    subprocess.run([sys.executable, "-P", "-c", code], check=True)
