"""Measure `kakeya web`: the list at 10,000 requests, how soon a line of a job's log is on the page, and the alarm.

    python benchmarks/web.py [--runs N] [--only NAME]
    python benchmarks/web.py --only alarm [--preset NAME] [-p NAME=VALUE] [--clone DIR]

The server is a real process on a real repository, asked over loopback. Needs the extra [web].

The alarm's figure repeats a gated preset as real jobs, which needs the engine, and takes the noise from its accepted
reports. With --clone it takes those that are already on the bus of that clone. It then prints how often the alarm is
false, and how often it finds a drop of 10 %, in simulated histories with that noise.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import common
import requests
from common import Figure, add_requests, git, make, measure, options_of, print_figures, show

from bridge.bus import objects, wire
from bridge.bus.objects import Identity
from bridge.client import Client
from bridge.manifest import format_time
from bridge.show.alarm import changes
from bridge.show.trends import group_into_trends, read_figures
from bridge.system.git import Git

MANY = 10_000
POLL_S = 1.0
HISTORIES = 1_000


def listing(folder: Path, options: argparse.Namespace) -> None:
    """Pages of the list with 10,000 answered requests on the bus."""
    place = make(folder)
    add_requests(place.bus, MANY)
    began = time.perf_counter()
    with serving(folder, place.clone) as url:
        print(
            f"until the server answers, {MANY} requests fetched and read: {time.perf_counter() - began:.1f} s"
        )
        for what, path in (
            ("the first page", ""),
            ("page 50", "?page=50"),
            ("a filter", "?preset=noop&page=100"),
        ):
            times = measure(options.runs, lambda path=path: ask(url + path))
            show(f"{what} of {MANY} requests", times, goal="< 300 ms", scale=1e3, unit="ms", digits=0)


def log_line(folder: Path, options: argparse.Namespace) -> None:
    """From the push of a heartbeat to the page that shows its line; the server looks every second."""
    place = make(folder)
    run = Client(place.clone).run("noop")
    pushed = Git.isolated(place.bus)
    tip, request = run.commit or "", run.commit or ""
    with serving(folder, place.clone) as url:
        times = []
        for i in range(options.runs):
            tip = beat(pushed, run.branch, request, tip, i)
            began = time.perf_counter()
            git(place.bus, "update-ref", f"refs/heads/{run.branch}", tip)
            while f"line {i}\n" not in ask(f"{url}run/{run.branch}"):
                time.sleep(0.02)
            times.append(time.perf_counter() - began)
    show("from the push of a line to its page", times, goal=f"< {POLL_S + 1:g} s")


def alarm(folder: Path, options: argparse.Namespace) -> None:
    """What the alarm does at the noise of real reports."""
    clone = Path(options.clone or "")
    if not options.clone:
        place = make(folder)
        clone = place.clone
        program = str(Path(sys.executable).with_name("kakeya"))
        given = [word for pair in options.param for word in ("-p", pair)]
        models = {"KAKEYA_MAC_VERIFIER_PATH": "tiny", "KAKEYA_MAC_DRAFTER_ID": "tiny"}
        with common.serving(folder, place, env=models):
            for _ in range(options.runs):
                argv = [program, "-C", str(place.clone), "run", options.preset, *given, "--wait", "2h"]
                subprocess.run(argv, check=False, capture_output=True)
    ended = Counter(str(one.state) for one in Client(clone).list(300) if one.preset == options.preset)
    print(f"{options.preset}: " + ", ".join(f"{count} {state}" for state, count in ended.items()))
    spreads = noise_of(clone, options.preset)
    if not spreads:
        print("no claim has three accepted runs; measure again on an idle machine")
        return
    timed = {name: spread for name, spread in spreads.items() if spread > 0}
    print(f"{len(spreads) - len(timed)} of {len(spreads)} claims are the same in each run")
    ordered = sorted(timed, key=lambda name: timed[name])
    for what, at in (("least", 0), ("median", len(ordered) // 2), ("largest", -1)):
        if ordered:
            name = ordered[at]
            print(f"{what} noise: {timed[name]:.2%} ({name}); {judged(timed[name])}")


def noise_of(clone: Path, preset: str) -> dict[str, float]:
    """Return the standard deviation from run to run of each claim of a preset, relative to its size."""
    found = {}
    client = Client(clone)
    answered = [status.branch for status in client.list(300) if status.answered]
    for trend in group_into_trends(read_figures(client, answered[::-1])):
        for series in trend.series():
            values = [one.value for one in series.values]
            if trend.preset == preset and len(values) >= 3 and min(values) > 0:
                name = f"{trend.name} of {trend.about}" if trend.about else trend.name
                found[name] = statistics.stdev(map(math.log, values))
                print(f"{name}: {len(values)} accepted runs, {found[name]:.2%}")
    return found


def judged(spread: float) -> str:
    """Return what the alarm does at a noise, in simulated histories."""
    dice = random.Random(1)

    def history(runs: int, level: float = 1.0) -> list[float]:
        return [level * math.exp(spread * dice.gauss(0, 1)) for _ in range(runs)]

    false = sum(bool(changes(history(60))) for _ in range(HISTORIES))
    found = []
    for before in (12, 20, 40):
        seen = 0
        for _ in range(HISTORIES):
            said = changes(history(before) + history(3, 0.9))
            seen += any(before - 2 <= one.at <= before for one in said)
        found.append(f"{seen / HISTORIES:.0%}")
    return (
        f"false alarms {false / HISTORIES:.1%} (goal 1 %), drops of 10 % found after 12 / 20 / 40 runs: "
        + " / ".join(found)
    )


FIGURES: dict[str, Figure] = {"listing": listing, "line": log_line, "alarm": alarm}


def beat(repo: Git, branch: str, request: str, tip: str, i: int) -> str:
    """Commit what a runner does: a state, and a piece of log."""
    state = wire.StateFile(
        schema_version=2, state=wire.State.RUNNING, branch=branch, request=request, salt=f"{i:016x}", token=1,
        sequence=i + 1, lease_s=120.0, runner=wire.Runner(id="bench", instance="bench", version="0"),
        at=format_time(datetime.now(UTC)),
    )  # fmt: skip
    tree = objects.overlay(
        repo, f"{tip}^{{tree}}", {wire.STATE: state.to_bytes(), wire.STREAM: f"line {i}\n".encode()}
    )
    return objects.commit(repo, tree, [tip], "running\n", Identity("bench", "bench@localhost"))


def ask(url: str) -> str:
    answer = requests.get(url, timeout=60)
    answer.raise_for_status()
    return answer.text


@contextmanager
def serving(folder: Path, clone: Path) -> Iterator[str]:
    """Run the server and yield its address."""
    log = folder / "web.log"
    argv = [
        sys.executable,
        "-P",
        "-m",
        "bridge",
        "-C",
        str(clone),
        "web",
        "--port",
        "0",
        "--poll",
        f"{POLL_S:g}",
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stderr=out)
    try:
        while not (found := re.search(r"http://127\.0\.0\.1:[0-9]+/", log.read_text(encoding="utf-8"))):
            if process.poll() is not None:
                raise SystemExit(log.read_text(encoding="utf-8"))
            time.sleep(0.02)
        yield found[0]
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    parser = options_of(__doc__, runs=10)
    parser.add_argument(
        "--preset", default="k3-native-baseline", help="the preset that is repeated for the alarm"
    )
    parser.add_argument(
        "-p", dest="param", action="append", default=[], metavar="NAME=VALUE", help="its parameters"
    )
    parser.add_argument("--clone", help="a clone of a bus with answers, instead of new runs")
    sys.exit(print_figures(parser, FIGURES))
