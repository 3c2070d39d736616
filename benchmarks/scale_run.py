"""One real run: many runner processes on one git server, killed at random, and what became of each request."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil
from common import Place, git, policy_for
from scale_server import GitServer

from bridge.bus import wire
from bridge.bus.branch_names import new_nonce
from bridge.manifest import format_time

LOST_RACE = "another runner was faster"
# As on a hosted server: a local one is polled more often.
POLL = {"poll_s": 2.0, "idle_poll_s": 15.0}
PRESET = "noop"
# How many requests of one requester a runner considers: limits.per_requester.waiting.
WAITING = 100
_SHOWN_S = 10.0
# A claim of a killed runner that is not started again in time is taken over after the lease.
LEASE_S = 120.0


@dataclass
class Fleet:
    """Runner processes, each with its own policy, state folder and log."""

    folder: Path
    place: Place
    url: str
    more: Mapping[str, object] = field(default_factory=dict)
    kills: int = 0
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    policies: dict[int, Path] = field(default_factory=dict)

    def start(self, number: int) -> None:
        """Start one runner, or start it again after it was killed."""
        home = self.folder / f"runner-{number}"
        if number not in self.policies:
            home.mkdir(parents=True)
            bus = {**POLL, "lease_s": LEASE_S, "url": self.url}
            more = {"id": f"runner-{number}", "sandbox": "off", "presets": [PRESET], **self.more}
            self.policies[number] = policy_for(home, self.place, bus=bus, **more)
        argv = [sys.executable, "-P", "-m", "runner", "--policy", str(self.policies[number]), "serve"]
        with (home / "log").open("ab") as log:
            self.processes[number] = subprocess.Popen(
                argv, stdout=log, stderr=log, cwd=home, stdin=subprocess.DEVNULL
            )

    def kill_one(self) -> None:
        """Kill a runner, whatever it does, and start it again at once, as a service manager does."""
        number = random.choice([*self.processes])
        self.processes[number].send_signal(signal.SIGKILL)
        self.processes[number].wait()
        self.kills += 1
        self.start(number)

    def stop(self) -> None:
        """Ask all runners to stop."""
        for process in self.processes.values():
            with suppress(OSError):
                process.terminate()
        for process in self.processes.values():
            process.wait(120)

    def wait_until_serving(self) -> None:
        """Wait until each runner polls."""
        until = time.monotonic() + 20 + 10 * len(self.processes)
        while any(
            b" serving " not in (policy.parent / "log").read_bytes() for policy in self.policies.values()
        ):
            if time.monotonic() > until:
                raise TimeoutError("the runners do not start")
            time.sleep(0.5)

    def wait_until_idle(self, bus: Path) -> None:
        """Wait until all requests are answered, and for the next two polls."""
        while answered(bus) < len(histories(bus)):
            time.sleep(0.5)
        time.sleep(5)

    def spent(self, server: GitServer) -> float:
        """Return the processor seconds of this process, the server and all runners so far."""
        times = os.times()
        ended = times.user + times.system + times.children_user + times.children_system
        live = [psutil.Process(process.pid) for process in self.processes.values()]
        return ended + server.processor_s() + sum(sum(each.cpu_times()[:4]) for each in live)

    def lost_races(self) -> int:
        """Return how many claims lost to another runner, with a push or with a look."""
        return sum(
            log.read_text(encoding="utf-8", errors="replace").count(LOST_RACE)
            for log in self.folder.glob("runner-*/log")
        )


@contextmanager
def fleet(
    folder: Path, place: Place, url: str, count: int, more: Mapping[str, object] | None = None
) -> Iterator[Fleet]:
    """Run so many runners, with ``more`` in their policies."""
    made = Fleet(folder, place, url, more or {})
    try:
        for number in range(count):
            made.start(number)
        yield made
    finally:
        made.stop()


def add_waiting(place: Place, count: int) -> list[str]:
    """Put requests on the bus at once, as clients would one by one. Returns their branches."""
    workload = subprocess.run(
        ["git", "rev-parse", "main"], cwd=place.bus, check=True, capture_output=True, text=True
    ).stdout.strip()
    now = time.time()
    out, branches = [], []
    for _ in range(count):
        nonce = new_nonce(now)
        manifest = {
            "schema_version": 2, "preset": PRESET, "params": {}, "ref": "main", "requested_by": "bench",
            "nonce": nonce, "workload": workload, "code": "installed",
            "created_at": format_time(datetime.fromtimestamp(now, UTC)),
            "expires_at": format_time(datetime.fromtimestamp(now + 86_400, UTC)),
        }  # fmt: skip
        text = json.dumps(manifest)
        branches.append(f"mac-bridge/{PRESET}-{nonce}")
        out.append(
            f"commit refs/heads/{branches[-1]}\ncommitter Bench <bench@localhost> 0 +0000\ndata 0\nfrom {workload}\n"
            f"M 100644 inline {wire.REQUEST}\ndata {len(text.encode())}\n{text}\n"
        )
    git(place.bus, "fast-import", "--quiet", "--done", stdin="".join([*out, "done\n"]).encode())
    git(place.bus, "pack-refs", "--all")
    return branches


def histories(bus: Path) -> dict[str, list[str]]:
    """Return the kinds of the commits that were pushed to each request branch, oldest first."""
    text = subprocess.run(
        ["git", "log", "--reverse", "--format=%S %s", "--glob=refs/heads/mac-bridge/*", "--not", "main"],
        cwd=bus, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        branch, _, subject = line.partition(" ")
        found.setdefault(branch.removeprefix("refs/heads/"), []).append(subject)
    return found


def answered(bus: Path) -> int:
    """Return how many requests have an answer, by the subjects of their tips."""
    text = subprocess.run(
        ["git", "for-each-ref", "--format=%(subject)", "refs/heads/mac-bridge/"],
        cwd=bus, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return sum(map(is_answer, text.splitlines()))


def is_answer(subject: str) -> bool:
    return subject.startswith("mac-bridge results: ")


@dataclass(frozen=True)
class Outcome:
    """What a run took."""

    seconds: float
    processor_s: float
    # How many cores other programs left to the run.
    cores: float
    kills: int
    lost_races: int
    counts: Counter[str]
    answers: Counter[int]

    def print(self, requests: int) -> None:
        """Print the figures of the run."""
        ones = self.answers[1]
        others = [f", {n} have {answers}" for answers, n in sorted(self.answers.items()) if answers != 1]
        print(f"answers: {ones} of {requests} requests have exactly one{''.join(others)}")
        print(f"real run: {self.seconds:.0f} s, {self.counts['push']} pushes ({self.counts['push'] / requests:.2f} a "
              f"request), {self.counts['fetch']} fetches, {self.counts['list']} listings, "
              f"{self.counts['bytes'] / 1e6:.0f} MB, {self.processor_s / requests:.2f} s of processor time a request, "
              f"{self.kills} kills, {self.lost_races} lost claims")  # fmt: skip


def real_run(
    folder: Path, place: Place, runners: int, requests: int, kill_every_s: float, seed: int, limit_s: float
) -> Outcome:
    """Serve requests with runners that are killed at random until each has an answer."""
    random.seed(seed)
    with GitServer(place.bus) as server, fleet(folder, place, server.url, runners) as made:
        made.wait_until_serving()
        # By then all of them make their longest pauses.
        time.sleep(2 * POLL["idle_poll_s"])
        before, used, idle = server.totals(), made.spent(server), idle_s()
        branches = add_waiting(place, requests)
        began = shown = killed = time.monotonic()
        until = began + limit_s
        while (done := answered(place.bus)) < requests and time.monotonic() < until:
            now = time.monotonic()
            if now - shown >= _SHOWN_S:
                shown = now
                print(
                    f"  {now - began:5.0f} s: {done} of {requests} answered, {made.kills} kills", flush=True
                )
            if kill_every_s and now - killed >= kill_every_s:
                killed = now
                made.kill_one()
            time.sleep(min(2.0, 0.2 + requests / 1000))
        seconds, counts, kills = time.monotonic() - began, server.totals() - before, made.kills
        processor_s = made.spent(server) - used
        cores = (processor_s + idle_s() - idle) / seconds
    found = histories(place.bus)
    answers = Counter(sum(map(is_answer, found.get(branch, []))) for branch in branches)
    return Outcome(seconds, processor_s, cores, kills, made.lost_races(), counts, answers)


def idle_s() -> float:
    """Return the seconds that all cores of this machine were idle so far."""
    times = psutil.cpu_times()
    return float(times.idle + getattr(times, "iowait", 0.0))
