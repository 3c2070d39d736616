"""Measure the runner under load: what a poll costs with very many branches, and how many requests it gets through.

    python benchmarks/load.py [--runs N] [--only NAME]

Real repositories and real runners in a temporary folder. It is not called runner.py because that would hide the
package of this name.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

from common import Figure, add_requests, make, measure, options_of, policy_for, print_figures, show

from bridge.client import Client
from bridge.system.git import Git
from runner.policy import Retention, load_policy
from runner.serve.loop import serve
from runner.serve.poll import Rounds
from runner.session import open_session
from runner.upkeep.retention import sweep

REFS = (100, 10_000, 100_000)
FLOOD = 20_000
BATCH = 40


def poll(folder: Path, options: argparse.Namespace) -> None:
    """One poll with 100, 10,000 and 100,000 answered requests on the bus."""
    for count in REFS:
        place = make(folder / str(count))
        add_requests(place.bus, count)
        with open_session(load_policy(policy_for(folder / str(count), place)), lambda _: None) as session:
            rounds = Rounds(session)
            first = measure(1, rounds.next)[0]
            times = measure(options.runs, rounds.next)
        show(
            f"a poll of {count} branches (the first took {first:.1f} s)",
            times,
            scale=1e3,
            unit="ms",
            digits=0,
        )


def throughput(folder: Path, options: argparse.Namespace) -> None:
    """Requests a minute through `serve` with noop: claimed, run under the supervisor, answered."""
    del options
    place = make(folder)
    requests = [Client(place.clone).run("noop") for _ in range(BATCH)]
    with open_session(load_policy(policy_for(folder, place)), lambda _: None) as session:
        began = time.perf_counter()
        handled = serve(session, limit=len(requests))
        seconds = time.perf_counter() - began
    print(f"serve, noop: {handled / seconds * 60:.0f} requests a minute ({handled} in {seconds:.1f} s)")


def flood(folder: Path, options: argparse.Namespace) -> None:
    """A new request among 20,000 answered ones, then what retention costs, then a request again."""
    place = make(folder)
    add_requests(place.bus, FLOOD)
    policy = load_policy(policy_for(folder, place))
    with open_session(policy, lambda _: None) as session:
        stop = threading.Event()
        # SQLite's connection belongs to this thread, so it is the client that gets one of its own.
        client = threading.Thread(target=_ask, args=(place.clone, options.runs, stop))
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


FIGURES: dict[str, Figure] = {"poll": poll, "throughput": throughput, "flood": flood}


if __name__ == "__main__":
    sys.exit(print_figures(options_of(__doc__, runs=10), FIGURES))
