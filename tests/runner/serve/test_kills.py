"""The runner killed with SIGKILL again and again: no request is lost, and none is answered twice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from bridge.bus import history
from bridge.bus.history import RequestBranch
from bridge.bus.wire import State
from bridge.client import Client, Run
from bridge.system.git import Git
from tests.conftest import wait_for

# When a kill comes: a random moment after what is named. A step of the protocol is soon over, so most of the random
# moments fall into jobs; the others are sought out.
KILLS = {
    "it was launched": 2,
    "it serves": 9,
    "it moved a branch": 5,
    "a job began": 4,
    "it noted an answer": 5,
}
# A request whose runner was killed this often is answered with `lost`, which is an answer; 10 is the most there is.
ATTEMPTS = 10
WAITING = 3


@dataclass
class Scene:
    """A runner that is killed and started anew with the same state folder, and requests that wait for it."""

    runners: Any
    bus: Path
    client: Client
    ran: Path
    policy: dict[str, object]
    asked: dict[str, tuple[int, Run]] = field(default_factory=dict)
    landed: Counter[str] = field(default_factory=Counter)
    orphans: set[psutil.Process] = field(default_factory=set)
    _seen: dict[str, str] = field(default_factory=dict)
    _open: list[RequestBranch] = field(default_factory=list)

    @property
    def git(self) -> Git:
        return Git.isolated(self.bus)

    def ask(self, tenths: int) -> Run:
        """Send a request for a job of so many tenths of a second."""
        n = len(self.asked) + 1
        run = self.client.run("append", {"n": n, "tenths": tenths})
        self.asked[run.branch] = (n, run)
        return run

    def refs(self) -> dict[str, str]:
        """Return where each branch of a request is, without a process: this is asked very often."""
        heads = self.bus / "refs" / "heads"
        return {branch: (heads / branch).read_text().strip() for branch in self.asked}

    def branches(self) -> dict[str, RequestBranch]:
        return history.read_branches(self.git, self.refs())

    def open(self) -> list[RequestBranch]:
        """Return the requests that have no answer. Git is asked only where a branch has moved."""
        refs = self.refs()
        if refs != self._seen:
            branches = history.read_branches(self.git, refs)
            self._open, self._seen = (
                [branch for branch in branches.values() if not branch.current_state.is_final],
                refs,
            )
        return self._open

    def runs(self) -> int:
        return len(self.ran.read_text().splitlines())

    def kept(self) -> bool:
        """Say whether an answer is noted that is not known to be on the bus."""
        return any(path.is_file() for path in self.runners.folder.glob("state-*/store.git/refs/kept/*"))

    def rehearse(self) -> tuple[float, float]:
        """Return how long this machine needs to start a runner, and then to answer: kills come within these times."""
        run = self.ask(2)
        began = time.monotonic()
        runner = self.runners.start(**self.policy)
        serves = time.monotonic()
        _wait(lambda: not self.open(), 60, 0.05)
        assert self.branches()[run.branch].current_state is State.SUCCEEDED, runner.said()
        assert runner.stop() == 0
        return serves - began, time.monotonic() - serves

    def launch_until(self, moment: str) -> Any:
        """Launch the runner and return when the moment has come, or cannot come any more."""
        before, runs = self.refs(), self.runs()
        if moment == "it was launched":
            return self.runners.launch(**self.policy)
        runner = self.runners.start(**self.policy)
        happened: dict[str, Callable[[], bool]] = {
            "it moved a branch": lambda: self.refs() != before,
            "a job began": lambda: self.runs() > runs,
            "it noted an answer": self.kept,
        }
        if moment in happened:
            _wait(happened[moment], 30)
        return runner

    def kill(self, runner: Any) -> str:
        """Kill the runner's process alone. Returns what it was doing."""
        below: list[psutil.Process] = []
        with suppress(psutil.Error):
            below = psutil.Process(runner.process.pid).children(recursive=True)
        runner.process.send_signal(signal.SIGKILL)
        assert runner.process.wait(120) == -signal.SIGKILL, runner.said()
        self.orphans |= set(below)
        if "serving" not in runner.said():
            return "opening"
        if self.kept():
            return "answering"
        if any(_is_job(process, self.runners.folder) for process in below):
            return "running"
        return (
            "claimed" if any(branch.current_state.is_taken for branch in self.open()) else "between requests"
        )


def _is_job(process: psutil.Process, folder: Path) -> bool:
    """Say whether a process belongs to a job: their home is in the state folder."""
    with suppress(psutil.Error, OSError):
        return str(process.environ().get("HOME", "")).startswith(str(folder))
    return False


def _wait(condition: Callable[[], object], timeout: float, pause: float = 0.002) -> None:
    """Wait closely, and not for ever: what does not come has nothing to do."""
    until = time.monotonic() + timeout
    while not condition() and time.monotonic() < until:
        time.sleep(pause)


@pytest.fixture
def scene(runners, bus, clone, presets, tmp_path):
    """A bus that remembers every place where a branch ever was."""
    ran = tmp_path / "ran"
    ran.touch()
    Git.isolated(bus)("config", "core.logAllRefUpdates", "always")
    Git.isolated(bus)("config", "gc.auto", "0")
    # What a job leaves in the background is to be ended with it, and also where the runner is gone.
    script = f'echo "$1" >> {ran}; sleep 300 & sleep 0.$2; echo done'
    folder = presets(
        append={
            "params": {
                "n": {"type": "int", "min": 1, "max": 999},
                "tenths": {"type": "int", "min": 1, "max": 9},
            },
            "steps": [{"argv": ["/bin/sh", "-c", script, "append", "{n}", "{tenths}"]}],
        }
    )
    policy = {
        "preset_folder": str(folder),
        "limits": {"attempts": ATTEMPTS, "grace_s": 0.5},
        # Longer than the test: whatever is taken up again was taken up because the runner knows its own claims.
        "bus": {"lease_s": 3600},
    }
    return Scene(runners, bus, Client(clone, presets=folder), ran, policy)


@pytest.mark.bus
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_kills_lose_no_request_and_none_is_answered_twice(scene):
    # KILLS_SEED draws the same moments again; what they hit is the machine's affair.
    seed = int(os.environ.get("KILLS_SEED") or random.randrange(1 << 32))
    chance = random.Random(seed)
    print(f"seed {seed}")
    began = time.monotonic()

    opening, pace = scene.rehearse()

    moments = [moment for moment, n in KILLS.items() for _ in range(n)]
    chance.shuffle(moments)
    longest = {"it was launched": opening, "it serves": 1.5 * pace}
    for moment in moments:
        for _ in range(WAITING - len(scene.open())):
            scene.ask(chance.choice((1, 2, 7)))
        runner = scene.launch_until(moment)
        time.sleep(chance.uniform(0, longest.get(moment, 0.05)))
        scene.landed[scene.kill(runner)] += 1
    assert scene.landed.total() == len(moments)

    last = scene.runners.start(**scene.policy)
    _wait(lambda: not scene.open(), 120, 0.05)
    assert last.stop() == 0
    left = scene.open()
    print(f"{scene.landed.total()} kills in {time.monotonic() - began:.0f} s: {dict(scene.landed)}")
    print(f"{len(scene.asked)} requests, {scene.runs()} executions")
    assert left == [], last.said()

    check_all(scene)


@pytest.mark.bus
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_fleet_under_kills_answers_each_request_once(scene):
    """`FLEET=8,100` starts eight runners for a hundred requests. About every second one runner is killed."""
    size, requests = map(int, os.environ.get("FLEET", "3,9").split(","))
    chance = random.Random(int(os.environ.get("KILLS_SEED", "0")))
    for _ in range(requests):
        scene.ask(chance.choice((1, 2, 7)))
    began = time.monotonic()
    fleet = {f"r{i}": scene.runners.launch(f"r{i}", **scene.policy) for i in range(size)}
    while scene.open() and scene.landed.total() < requests and time.monotonic() - began < 900:
        time.sleep(chance.uniform(0.2, 2.0))
        name = chance.choice([*fleet])
        scene.landed[scene.kill(fleet[name])] += 1
        fleet[name] = scene.runners.launch(name, **scene.policy)
    _wait(lambda: not scene.open(), 300, 0.05)

    for runner in fleet.values():
        wait_for(lambda runner=runner: "serving" in runner.said())
        assert runner.stop() == 0
    print(f"{scene.landed.total()} kills in {time.monotonic() - began:.0f} s: {dict(scene.landed)}")
    print(f"{size} runners, {requests} requests, {scene.runs()} executions")
    assert scene.landed.total() > 0
    assert scene.open() == []
    check_all(scene)


def check_all(scene):
    """Check that nothing runs on, that no answer is left unpublished, and the history of every request."""
    _, alive = psutil.wait_procs(scene.orphans, timeout=10)
    assert alive == []
    assert [p for p in psutil.process_iter() if _is_job(p, scene.runners.folder)] == []
    assert not scene.kept()
    executions = Counter(int(line) for line in scene.ran.read_text().splitlines())
    ends = Counter(check_history(scene, *asked, executions) for asked in scene.asked.values())
    print(f"answers: {dict(ends)}")
    assert ends["succeeded"] > 0
    assert set(ends) <= {"succeeded", "lost"}


def check_history(scene, n, run, executions):
    """Check one request's branch from the request to its tip, and return how it ended."""
    git, tip = scene.git, scene.refs()[run.branch]
    line = [run.commit, *history.commits_between(git, run.commit, tip)]
    # Whatever anybody ever saw there is part of what is there now: nothing was taken back.
    log = (scene.bus / "logs" / "refs" / "heads" / run.branch).read_text().splitlines()
    assert {entry.split()[1] for entry in log} <= set(line)

    states = [state for _, state, _ in history.streamed_states(git, run.commit, tip)]
    assert len(states) == len(line) - 1
    assert [state.state for state in states if state.state.is_final] == [states[-1].state]
    assert [state.sequence for state in states] == list(range(1, len(states) + 1))
    tokens = [state.token for state in states]
    assert tokens == sorted(tokens)
    claims = [state.token for state in states if state.state is State.CLAIMED]
    assert claims == list(range(1, len(claims) + 1))

    end = states[-1].state
    assert executions[n] <= len(claims)
    if end is State.LOST:
        assert len(claims) == ATTEMPTS
    else:
        assert executions[n] >= 1
        assert tokens[-1] == claims[-1]
    report = scene.client.verify(run.branch)
    assert report.holds, report
    result = scene.client.result(run.branch)
    assert (result.state, result.request, result.token) == (end, run.commit, tokens[-1])
    return str(end)
