"""Measure the bus: what a request costs, and what it costs when there is much of everything.

    python benchmarks/bus.py [--runs N] [--only NAME]

Every figure is of real processes on real repositories in a temporary folder. Ratios are taken between runs that took
turns. Prints the machine first, then a line a figure: the median, the spread, and the goal where there is one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from common import (
    FEW,
    Figure,
    Place,
    add_requests,
    git,
    make,
    measure,
    options_of,
    policy_for,
    print_figures,
    serving,
    show,
    sign_states,
)

from runner.context import open_runner
from runner.policy import load_policy
from runner.serve.compose import Composer
from runner.state import signing_key

MANY = 10_000


def start_up(folder: Path, options: argparse.Namespace) -> None:
    """`kakeya --help`, the whole process."""
    del folder
    show(
        "kakeya --help",
        measure(options.runs, lambda: kakeya("--help")),
        goal="< 150 ms",
        scale=1e3,
        unit="ms",
        digits=0,
    )


def round_trip(folder: Path, options: argparse.Namespace) -> None:
    """`kakeya run noop --wait`: sent, claimed, run, answered; the whole client process, against a serving runner."""
    place = make(folder)
    with serving(folder, place):
        kakeya("-C", str(place.clone), "run", "noop", "--wait")
        times = measure(options.runs, lambda: kakeya("-C", str(place.clone), "run", "noop", "--wait"))
    show("kakeya run noop --wait", times, goal="p50 < 0.7 s")


def files_in_tree(folder: Path, options: argparse.Namespace) -> None:
    """What a request costs with 10,000 files in the tree, beside 10."""
    few, many = make(folder / "few", files=FEW), make(folder / "many", files=MANY)
    compare(f"request, {MANY} files against {FEW}", options.runs, many, few, goal="<= 1.2x")


def branches_on_bus(folder: Path, options: argparse.Namespace) -> None:
    """What a request costs with 10,000 request branches on the bus, beside 10."""
    few, many = make(folder / "few", files=FEW), make(folder / "many", files=FEW)
    add_requests(few.bus, FEW)
    add_requests(many.bus, MANY)
    compare(f"request, {MANY} branches against {FEW}", options.runs, many, few, goal="<= 1.5x")


def poll(folder: Path, options: argparse.Namespace) -> None:
    """One poll of a runner with 10,000 answered request branches on the bus."""
    place = make(folder)
    add_requests(place.bus, MANY)
    with open_runner(load_policy(policy_for(folder, place)), lambda _: None) as context:
        poller = Composer(context).poller()
        began = time.perf_counter()
        poller.poll()
        first = time.perf_counter() - began
        times = measure(options.runs, poller.poll)
    print(f"first poll, {MANY} branches: {first * 1e3:.0f} ms (fetches and reads them all, once)")
    show(f"later polls, {MANY} branches", times, scale=1e3, unit="ms", digits=0)


def list_unsigned(folder: Path, options: argparse.Namespace) -> None:
    """`kakeya list` with 10,000 answered requests on the bus: in a clone that never listed any, then again."""
    place = make(folder)
    add_requests(place.bus, MANY)
    time_list("kakeya list", place, options.runs)


def list_signed(folder: Path, options: argparse.Namespace) -> None:
    """The same with states that a runner signed, whose key is pinned in the clone."""
    place = make(folder)
    signing_key.make_key(folder / "state")
    signer = signing_key.load_signer(folder / "state")
    assert signer is not None
    add_requests(place.bus, MANY)
    sign_states(place.bus, signer)
    git(place.clone, "config", "kakeya.publicKey", str(folder / "state" / signing_key.PUBLIC))
    time_list("kakeya list, signed states", place, options.runs)


def time_list(what: str, place: Place, runs: int) -> None:
    """Print what listings cost, by the clock and in processor time of the client and of all git processes."""
    clones = []
    for i in range(runs + 1):
        clone = place.clone.with_name(f"clone-{i}")
        shutil.copytree(place.clone, clone)
        clones.append(clone)

    def lists(clone: Path) -> None:
        kakeya("-C", str(clone), "list")

    # Python compiles what it imports when it is first needed.
    lists(clones.pop())
    for which, calls in (
        ("first", [partial(lists, clone) for clone in clones]),
        ("later", [partial(lists, clones[0])] * runs),
    ):
        before = os.times()
        times = [measure(1, call)[0] for call in calls]
        after = os.times()
        spent = after.children_user + after.children_system - before.children_user - before.children_system
        processor = f"{spent / runs:.2f} s of processor time"
        show(f"{what}, {MANY} branches, {which}: {processor}", times, goal="p50 < 1 s")


def size(folder: Path, options: argparse.Namespace) -> None:
    """What a client-only install takes on disk. Needs a package index."""
    del options
    root = Path(__file__).parent.parent
    # Compiled files count, so they belong beside their sources, as an installation has them.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--target",
        str(folder),
    ]
    subprocess.run(
        [*pip, "--require-hashes", "-r", str(root / "release" / "requirements" / "base.txt")],
        check=True,
        env=env,
        stderr=subprocess.DEVNULL,
    )
    subprocess.run(
        [*pip, "--no-deps", "--no-build-isolation", str(root)], check=True, env=env, stderr=subprocess.DEVNULL
    )
    total = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and not f.is_symlink())
    compiled = sum(f.stat().st_size for f in folder.rglob("*.pyc"))
    heavy = [name for name in ("mlx", "numpy") if (folder / name).exists()]
    print(f"client-only install: {total / 1e6:.1f} MB, {compiled / 1e6:.1f} MB of it compiled (goal < 60 MB)"
          f"; holds {', '.join(heavy) or 'neither mlx nor numpy'}")  # fmt: skip


FIGURES: dict[str, Figure] = {
    "start-up": start_up,
    "round-trip": round_trip,
    "files": files_in_tree,
    "branches": branches_on_bus,
    "poll": poll,
    "list": list_unsigned,
    "list-signed": list_signed,
    "size": size,
}


def kakeya(*args: str) -> None:
    program = Path(sys.executable).with_name("kakeya")
    subprocess.run([str(program), *args], check=True, capture_output=True)


def compare(what: str, runs: int, a: Place, b: Place, *, goal: str) -> None:
    """Time `kakeya run noop` (sent, not waited for) in two places by turns, and print the ratio pair by pair."""

    def ask(place: Place) -> float:
        return measure(1, lambda: kakeya("-C", str(place.clone), "run", "noop"))[0]

    ask(a), ask(b)
    pairs = [(ask(a), ask(b)) for _ in range(runs)]
    ratios = sorted(x / y for x, y in pairs)
    times = [statistics.median(column) * 1e3 for column in zip(*pairs, strict=True)]
    print(f"{what}: {statistics.median(ratios):.2f}x ({times[0]:.0f} against {times[1]:.0f} ms; {runs} pairs, "
          f"{ratios[0]:.2f} to {ratios[-1]:.2f}x) (goal {goal})")  # fmt: skip


if __name__ == "__main__":
    sys.exit(print_figures(options_of(__doc__, runs=20), FIGURES))
