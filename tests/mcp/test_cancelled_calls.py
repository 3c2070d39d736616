"""Clients cancel calls, or die in the middle of one: the server lives on, or ends with all that it started."""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bridge.client import Client
from tests.attacks.servers import silent

pytestmark = [pytest.mark.bus, pytest.mark.long, pytest.mark.timeout(900)]

CALLS = 250
AT_ONCE = 8
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
# A client that asks for what it is given, says so, and then waits.
CLIENT = """
import json, subprocess, sys
server = subprocess.Popen(json.loads(sys.argv[1]), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for message in json.loads(sys.argv[2]):
    server.stdin.write(json.dumps(message).encode() + b"\\n")
    server.stdin.flush()
    if message["id"] == 1:
        server.stdout.readline()
print("asked", flush=True)
server.wait()
"""


def call(number: int, name: str, **args: object) -> dict[str, object]:
    return {
        "jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": args},
    }  # fmt: skip


class TalkingClient:
    """Speaks to a server line by line, with several calls under way, and reads its answers in the background."""

    def __init__(self, door) -> None:
        self.process = subprocess.Popen(
            door.argv, env=door.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.answers: queue.Queue[dict] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.answers.put(json.loads(line))

    def send(self, message: dict[str, object]) -> None:
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def end(self) -> int:
        """Close the server's input, and return its exit code."""
        self.process.stdin.close()
        code = self.process.wait(60)
        self._reader.join(60)
        self.process.stdout.close()
        return code

    def cancel(self, number: int) -> None:
        params = {"requestId": number, "reason": "changed my mind"}
        self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})


def resident_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task")
    return [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_the_server_outlives_hundreds_of_calls_of_which_many_are_cancelled(served, wait_for):
    chance = random.Random(8)
    done = Client(served.clone, presets=served.presets).run("noop")
    done.wait(60)
    waiting = Client(served.clone, presets=served.presets).run("noop", labels=["nowhere"])
    kinds = [
        ("kakeya_wait", {"request": waiting.branch, "seconds": 20}),
        ("kakeya_wait", {"request": done.branch, "seconds": 20}),
        ("kakeya_status", {"request": waiting.branch}),
        ("kakeya_logs", {"request": done.branch}),
        ("kakeya_list", {}),
        ("kakeya_presets", {}),
        ("kakeya_run", {"preset": "noop", "idempotency_key": "again"}),
        ("kakeya_status", {"unknown": 1}),
    ]
    client = TalkingClient(served)
    client.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO})
    assert client.answers.get(timeout=60)["id"] == 0
    under_way: dict[int, float] = {}
    cancelled, answered, sizes = set(), set(), []
    number = 0
    while number < CALLS or under_way:
        assert client.process.poll() is None, f"the server ended after {number} calls"
        while number < CALLS and len(under_way) < AT_ONCE:
            number += 1
            name, args = chance.choice(kinds)
            client.send(call(number, name, **args))
            # Calls that wait are always cancelled, others half of the time, mostly before their end.
            waits = args.get("request") == waiting.branch and name == "kakeya_wait"
            delay = chance.choice((0.0, 0.01, 0.2)) if waits or chance.random() < 0.5 else 600.0
            under_way[number] = time.monotonic() + delay
        with suppress(queue.Empty):
            answer = client.answers.get(timeout=0.05)
            answered.add(answer.get("id"))
            under_way.pop(answer.get("id"), None)
        for asked, when in list(under_way.items()):
            if when <= time.monotonic():
                client.cancel(asked)
                # Also one that was cancelled before, and one that was never sent.
                client.cancel(chance.choice((asked, number + 1000)))
                cancelled.add(asked)
                del under_way[asked]
        if number in (50, CALLS):
            sizes.append(resident_kb(client.process.pid))

    client.send(call(CALLS + 1, "kakeya_status", request=done.branch))
    wait_for(lambda: client.answers.get(timeout=60).get("id") == CALLS + 1)
    assert len(cancelled) > CALLS // 4
    assert len(answered) > CALLS // 4
    assert sizes[-1] < sizes[0] + 32 * 1024
    wait_for(lambda: not [pid for pid in children(client.process.pid) if is_short_lived(pid)])
    assert client.end() == 0
    keyed = [status for status in Client(served.clone).list(100) if status.preset == "noop"]
    assert len(keyed) == 3


def is_short_lived(pid: int) -> bool:
    """Return whether a child is none of the helpers that a server keeps: git's readers of objects."""
    with suppress(OSError):
        return b"cat-file" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def processes_about(folder: Path) -> set[int]:
    """Return the processes whose command or environment names a folder."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            if bytes(folder) in text and int(entry.name) != os.getpid():
                found.add(int(entry.name))
    return found


@contextmanager
def dying(door, *messages: dict[str, object]):
    """Start a client that asks a server, and kill it once it has."""
    env = {**door.env, "MARK": str(door.clone)}
    argv = [sys.executable, "-c", CLIENT, json.dumps(door.argv), json.dumps(messages)]
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "asked\n"
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        process.stdout.close()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@pytest.mark.parametrize("bus_is", ["there", "silent"])
def test_a_client_that_is_killed_in_a_wait_leaves_no_process(door, git, bus_is, wait_for):
    run = Client(door.clone, presets=door.presets).run("noop")
    with silent() as port:
        if bus_is == "silent":
            git(door.clone, "remote", "set-url", "origin", f"git://127.0.0.1:{port}/bus.git")
        # This process's own readers of objects.
        before = processes_about(door.clone)
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
        with dying(door, hello, call(2, "kakeya_wait", request=run.branch, seconds=3000)):
            # The server and, sooner or later, its git.
            wait_for(lambda: len(processes_about(door.clone) - before) >= 3)

        wait_for(lambda: not processes_about(door.clone) - before, 60)
