"""The server dies at any moment; the next one goes on, nothing is lost and nothing runs twice."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.bus.wire import State
from bridge.client import Client

pytestmark = [pytest.mark.bus, pytest.mark.long, pytest.mark.timeout(600)]

KILLS = 12


class KilledError(Exception):
    """The server died before it answered."""


class Server:
    """A server that is spoken to line by line, so that its death can be told from an answer."""

    def __init__(self, door) -> None:
        self.process = subprocess.Popen(
            door.argv,
            env=door.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._number = 0
        self._timer: threading.Timer | None = None

    def kill_after(self, seconds: float, *, group: bool) -> None:
        end = os.killpg if group else os.kill
        self._timer = threading.Timer(seconds, end, (self.process.pid, signal.SIGKILL))
        self._timer.start()

    def ask(self, method: str, **params: object) -> dict:
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        while line := self.process.stdout.readline():
            message = json.loads(line)
            if message.get("id") == self._number:
                return message["result"]
        raise KilledError

    def _send(self, message: dict) -> None:
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise KilledError from error

    def call(self, name: str, **args: object) -> dict:
        result = self.ask("tools/call", name=name, arguments=args)
        assert not result.get("isError"), result
        return result["structuredContent"]

    def __enter__(self):
        return self

    def __exit__(self, *_exc) -> None:
        if self._timer:
            self._timer.cancel()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(120)
        self.process.stdin.close()
        self.process.stdout.close()


def expect_death(server: Server, name: str, **args: object) -> None:
    with pytest.raises(KilledError):
        server.call(name, **args)


def whole_run(server: Server, key: str, reached: Callable[[str], None] = lambda _stage: None) -> dict:
    reached("starting")
    server.ask(
        "initialize",
        protocolVersion="2025-11-25",
        capabilities={},
        clientInfo={"name": "test", "version": "1"},
    )
    reached("asking")
    branch = server.call("kakeya_run", preset="count", params={"n": 1}, idempotency_key=key)["branch"]
    reached("waiting")
    answer = server.call("kakeya_wait", request=branch, seconds=60)
    reached("end")
    return answer


def test_nothing_is_lost_and_nothing_runs_twice(served, clone, tmp_path):
    chance = random.Random(16)
    left: dict[str, float] = {}
    for key in ("first", "second"):  # one alone may be slow, and kills that are timed by it too late
        at: dict[str, float] = {}
        with Server(served) as undisturbed:
            whole_run(undisturbed, key, lambda stage, at=at: at.update({stage: time.monotonic()}))
        left = {stage: min(at["end"] - began, left.get(stage, math.inf)) for stage, began in at.items()}
    branches, died = set(), []
    for i in range(KILLS):
        stage = ("starting", "asking", "asking", "waiting")[i % 4]
        # Later runs may be faster than the first one: most kills have to come before their end all the same.
        delay = chance.uniform(0, 0.5 * left[stage])
        seen = []

        def reached(now: str, stage=stage, delay=delay, seen=seen) -> None:
            seen.append(now)
            if now == stage:
                first.kill_after(delay, group=chance.random() < 0.5)

        with Server(served) as first:
            try:
                whole_run(first, f"task-{i}", reached)
                left[stage] /= 2  # the machine is faster than it was: the next kills come sooner
            except KilledError:
                died.append(seen[-1])
        with Server(served) as second:
            answer = whole_run(second, f"task-{i}")
        assert answer["exit_code"] == 0, answer
        branches.add(answer["branch"])

    print(f"{KILLS} kills; the server died {dict(Counter(died))}")
    assert len(died) > KILLS // 2
    assert {"asking", "waiting"} <= set(died)
    found = Client(clone, presets=served.presets).list(100)
    assert branches < {status.branch for status in found}
    assert len(found) == KILLS + 2
    assert len(branches) == KILLS
    assert {status.state for status in found} == {State.SUCCEEDED}
    assert Path(tmp_path / "counted").read_text().splitlines() == ["ran"] * (KILLS + 2)


@pytest.mark.parametrize("end", [os.kill, os.killpg], ids=["the server", "its process group"])
def test_a_push_that_outlives_its_server_counts(door, bus, clone, git, tmp_path, end):
    """The remote is slow to take the push; the server dies meanwhile, and the next one asks at once."""
    hook = bus / "hooks" / "pre-receive"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/pushing\nsleep 3\n")
    hook.chmod(0o755)
    answers = []
    with Server(door) as first:
        first.ask(
            "initialize",
            protocolVersion="2025-11-25",
            capabilities={},
            clientInfo={"name": "t", "version": "1"},
        )
        asking = threading.Thread(
            target=expect_death, args=(first, "kakeya_run"), kwargs={"preset": "noop", "idempotency_key": "k"}
        )
        asking.start()
        deadline = time.monotonic() + 60
        while not (tmp_path / "pushing").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        end(first.process.pid, signal.SIGKILL)
        asking.join()
    for _ in range(2):
        with Server(door) as server:
            server.ask(
                "initialize",
                protocolVersion="2025-11-25",
                capabilities={},
                clientInfo={"name": "t", "version": "1"},
            )
            answers.append(server.call("kakeya_run", preset="noop", idempotency_key="k"))

    assert [answer["existing"] for answer in answers] == [True, True]
    branches = git(bus, "for-each-ref", "--format=%(refname:short)", "refs/heads/mac-bridge/").splitlines()
    assert branches == [answers[0]["branch"]] == [answers[1]["branch"]]
