"""Measure the runner under load: what a poll costs with very many branches, and how many requests it gets through.

    python benchmarks/load.py [--runs N] [--only NAME]

Real repositories and real runners in a temporary folder, as in bus.py, whose helpers this uses. It is not called
runner.py because that would hide the package of this name from both.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bus import FEW, add_requests, make, measure, policy_for, show

from bridge.client import Client
from bridge.git import Git
from runner.policy import Retention, load_policy
from runner.retention import sweep
from runner.rounds import Rounds
from runner.serve import serve
from runner.session import open_session

REFS = (100, 10_000, 100_000)
FLOOD = 20_000
BATCH = 40


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10, help="counted runs of each figure (default 10)")
    parser.add_argument("--only", choices=sorted(FIGURES), help="one figure instead of all")
    options = parser.parse_args()
    system = f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{system}, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="kakeya-bench-") as folder:
        home = Path(folder) / "home"
        home.mkdir()
        (home / ".gitconfig").write_text(
            "[user]\n\tname = Bench\n\temail = bench@localhost\n", encoding="utf-8"
        )
        os.environ["HOME"] = str(home)
        for name in [options.only] if options.only else FIGURES:
            FIGURES[name](Path(folder) / name, options.runs)
    return 0


def poll(folder: Path, runs: int) -> None:
    """One poll with 100, 10,000 and 100,000 answered requests on the bus."""
    for count in REFS:
        place = make(folder / str(count), files=FEW)
        add_requests(place.bus, count)
        with open_session(load_policy(policy_for(folder / str(count), place)), lambda _: None) as session:
            rounds = Rounds(session)
            first = measure(1, rounds.next)[0]
            times = measure(runs, rounds.next)
        show(f"a poll of {count} branches (the first took {first:.1f} s)", times, scale=1e3, unit="ms")


def throughput(folder: Path, runs: int) -> None:
    """Requests a minute through `serve` with noop: claimed, run under the supervisor, answered."""
    del runs
    place = make(folder, files=FEW)
    requests = [Client(place.clone).run("noop") for _ in range(BATCH)]
    with open_session(load_policy(policy_for(folder, place)), lambda _: None) as session:
        began = time.perf_counter()
        handled = serve(session, limit=len(requests))
        seconds = time.perf_counter() - began
    print(f"serve, noop: {handled / seconds * 60:.0f} requests a minute ({handled} in {seconds:.1f} s)")


def flood(folder: Path, runs: int) -> None:
    """A new request among 20,000 answered ones, then what retention costs, then a request again."""
    place = make(folder, files=FEW)
    add_requests(place.bus, FLOOD)
    policy = load_policy(policy_for(folder, place))
    with open_session(policy, lambda _: None) as session:
        stop = threading.Event()
        # SQLite's connection belongs to this thread, so it is the client that gets one of its own.
        client = threading.Thread(target=_ask, args=(place.clone, runs, stop))
        client.start()
        serve(replace(session, stop=stop))
        client.join()
        began = time.perf_counter()
        swept = sweep(session, Retention(keep=1000))
        seconds = time.perf_counter() - began
    print(f"retention: {len(swept.deleted)} of {FLOOD} archived and deleted in {seconds:.1f} s")
    left = Git.isolated(place.bus).text("for-each-ref", "--format=x", "refs/heads/mac-bridge/").splitlines()
    print(f"left on the bus: {len(left)} branches")


def _ask(clone: Path, runs: int, stop: threading.Event) -> None:
    client = Client(clone)
    try:
        client.run("noop").wait(300)
        times = measure(runs, lambda: client.run("noop").wait(300))
        show(f"a request from sending to answer beside {FLOOD} others", times)
    finally:
        stop.set()


FIGURES: dict[str, Callable[[Path, int], None]] = {"poll": poll, "throughput": throughput, "flood": flood}


if __name__ == "__main__":
    sys.exit(main())
