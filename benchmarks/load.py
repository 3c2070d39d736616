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
from runner.context import RunnerContext, open_runner
from runner.policy import Retention, load_policy
from runner.serve.compose import Composer
from runner.serve.loop import serve

REFS = (100, 10_000, 100_000)
FLOOD = 20_000
BATCH = 40
INTERVAL_S, INTERVALS, JOBS = 2.0, 10, 5


def poll(folder: Path, options: argparse.Namespace) -> None:
    """One poll with 100, 10,000 and 100,000 answered requests on the bus."""
    for count in REFS:
        place = make(folder / str(count))
        add_requests(place.bus, count)
        with open_runner(load_policy(policy_for(folder / str(count), place)), lambda _: None) as context:
            poller = Composer(context).poller()
            first = measure(1, poller.poll)[0]
            times = measure(options.runs, poller.poll)
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
    with open_runner(load_policy(policy_for(folder, place)), lambda _: None) as context:
        began = time.perf_counter()
        handled = serve(context, limit=len(requests))
        seconds = time.perf_counter() - began
    print(f"serve, noop: {handled / seconds * 60:.0f} requests a minute ({handled} in {seconds:.1f} s)")


def flood(folder: Path, options: argparse.Namespace) -> None:
    """A new request among 20,000 answered ones, then what retention costs, then a request again."""
    place = make(folder)
    add_requests(place.bus, FLOOD)
    policy = load_policy(policy_for(folder, place))
    with open_runner(policy, lambda _: None) as context:
        stop = threading.Event()
        # SQLite's connection belongs to this thread, so it is the client that gets one of its own.
        client = threading.Thread(target=_ask, args=(place.clone, options.runs, stop))
        client.start()
        serve(replace(context, process=replace(context.process, stop=stop)))
        client.join()
        began = time.perf_counter()
        swept = Composer(context).sweeper().sweep(Retention(keep=1000))
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


def presence(folder: Path, options: argparse.Namespace) -> None:
    """What announcing a runner costs: pushes an hour while idle, and for requests; measured with short intervals."""
    del options
    place = make(folder)
    policy = load_policy(policy_for(folder, place))
    usual = policy.bus.presence_s or 0.0
    short = policy.model_copy(update={"bus": policy.bus.model_copy(update={"presence_s": INTERVAL_S})})
    with open_runner(short, lambda _: None) as context:
        stop = threading.Event()
        timer = threading.Timer(INTERVALS * INTERVAL_S, stop.set)
        timer.start()
        serve(replace(context, process=replace(context.process, stop=stop)))
        idle = _own_pushes(context) - 2
    print(
        f"presence, idle: {idle} pushes in {INTERVALS} intervals, so {idle / INTERVALS * 3600 / usual:.1f} an hour "
        f"with the usual interval of {usual:g} s (goal at most 12); one more at the start and at the end"
    )
    requests = [Client(place.clone).run("noop") for _ in range(JOBS)]
    with open_runner(policy, lambda _: None) as context:
        serve(context, limit=len(requests))
        print(f"presence, {JOBS} noop requests in a row: {_own_pushes(context)} pushes of its own")
    times = measure(JOBS, Client(place.clone).runners)
    show("presence, a client's fetch of all records", times, scale=1e3, unit="ms", digits=0)


def _own_pushes(context: RunnerContext) -> int:
    return context.announcer.pushes if context.announcer else 0


FIGURES: dict[str, Figure] = {
    "poll": poll,
    "throughput": throughput,
    "flood": flood,
    "presence": presence,
}


if __name__ == "__main__":
    sys.exit(print_figures(options_of(__doc__, runs=10), FIGURES))
