"""Measure how far one bus goes: what a job costs, what many runners take, and what a host's limits allow.

    python benchmarks/scale.py [--only costs|traffic|limits|simulation|run]
    python benchmarks/scale.py --only run --runners 50 --requests 2000

`costs` and `traffic` measure one job at a time against `git daemon`. `limits` and `simulation` compute from these
figures. `run` starts real runners on a real server, kills them at random with SIGKILL, starts them again, and prints
what became of each request beside the simulation of the same run.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from common import make, own_home, print_machine
from scale_costs import Measured, measure_costs
from scale_run import real_run
from scale_simulation import Prediction, Simulation
from scale_traffic import heartbeats, job_traffic, print_traffic

LENGTHS_S = (1, 60, 600, 3600)
# Pushes a minute for one repository that GitHub recommends at most.
GITHUB = 6
FLEETS = ((1, 100), (5, 500), (20, 500), (50, 2000), (200, 2000))
SPREAD = range(5)
FIGURES = ("costs", "traffic", "limits", "simulation", "run")


def main() -> int:
    """Print the figures that were asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=FIGURES, help="one figure instead of all")
    parser.add_argument(
        "--runners", type=int, default=10, help="runner processes of the real run (default 10)"
    )
    parser.add_argument("--requests", type=int, default=60, help="requests of the real run (default 60)")
    parser.add_argument(
        "--kill-every", type=float, default=10.0, help="seconds between kills; 0: none (default 10)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the kills (default 1)")
    parser.add_argument(
        "--limit", type=float, default=7200.0, help="seconds that the run may take (default 7200)"
    )
    options = parser.parse_args()
    print_machine()
    names = [options.only] if options.only else FIGURES
    is_good = True
    with own_home() as folder:
        costs = None
        if {"costs", "simulation", "run"} & {*names}:
            print("processor time of runner and server (git daemon on this machine):", flush=True)
            (folder / "costs").mkdir()
            costs = measure_costs(folder / "costs")
            costs.print()
        if "traffic" in names:
            print("connections to the server:", flush=True)
            (folder / "traffic").mkdir()
            print_traffic(job_traffic(folder / "traffic"))
        if "limits" in names:
            print_limits()
        if costs and "simulation" in names:
            print_simulation(costs)
        if costs and "run" in names:
            is_good = compare(folder, costs, options)
    return 0 if is_good else 1


def print_limits() -> None:
    """Print heartbeats by length of job, and how many jobs a push limit allows."""
    print(f"pushes of a job (request, claim, heartbeats, answer), and what {GITHUB} a minute allow:")
    for seconds in LENGTHS_S:
        quiet, prints = (3 + heartbeats(seconds, prints=prints) - (seconds < 2) for prints in (False, True))
        a_day = [GITHUB * 60 * 24 // pushes for pushes in (quiet, prints)]
        print(
            f"  {seconds} s: {quiet} without output, {prints} with steady output; {a_day[0]} to {a_day[1]} jobs a day"
        )


def print_simulation(costs: Measured) -> None:
    """Print what the simulation says of some fleets, with a core for the server and one for each runner."""
    print(
        "simulated: empty jobs, a server of 2 cores, runners on machines of their own, a kill each 10 s, 5 seeds:"
    )
    for runners, requests in FLEETS:
        found = [Simulation(costs, runners, requests, 10.0, seed, 2.0, shared=False).run() for seed in SPREAD]
        found.sort(key=lambda each: each.seconds)
        middle = found[len(found) // 2]
        print(f"  {runners} runners, {requests} requests: {middle.seconds:.0f} s ({found[0].seconds:.0f} to "
              f"{found[-1].seconds:.0f}), {middle.pushes / requests:.2f} pushes a request, "
              f"{middle.pushes / middle.seconds * 60:.0f} pushes a minute, answers {summary(middle)}")  # fmt: skip


def compare(folder: Path, costs: Measured, options: argparse.Namespace) -> bool:
    """Make the real run, and print it beside the simulation. Returns whether each request has one answer."""
    place = make(folder / "run")
    runs = f"{options.runners} runners, {options.requests} requests, a kill each {options.kill_every:g} s"
    print(f"{runs}, {os.cpu_count()} cores", flush=True)
    real = real_run(
        folder / "run",
        place,
        options.runners,
        options.requests,
        options.kill_every,
        options.seed,
        options.limit,
    )
    cores = real.cores
    real.print(options.requests)
    told = [
        Simulation(
            costs, options.runners, options.requests, options.kill_every, seed, cores, shared=True
        ).run()
        for seed in SPREAD
    ]
    told.sort(key=lambda each: each.seconds)
    middle = told[len(told) // 2]
    spread = f"{told[0].seconds:.0f} to {told[-1].seconds:.0f}"
    print(
        f"simulated with {cores:.2f} cores: {middle.seconds:.0f} s ({spread}), {middle.pushes} pushes, "
        f"{middle.fetches} fetches, {middle.listings} listings, "
        f"{middle.core_s / options.requests:.2f} s of processor time a request, {middle.kills} kills, "
        f"{middle.lost_claims} lost claims, answers {summary(middle)}"
    )
    for name, measured, simulated in (
        ("time", real.seconds, middle.seconds),
        ("processor time", real.processor_s, middle.core_s),
        ("pushes", real.counts["push"], middle.pushes),
    ):
        print(f"{name}: real is {measured / simulated:.2f} of simulated (goal .80 to 1.20)")
    return real.answers == {1: options.requests}


def summary(found: Prediction) -> str:
    """Return how many requests have exactly one answer."""
    return f"{found.answers.count(1)} of {len(found.answers)} exactly one"


if __name__ == "__main__":
    sys.exit(main())
