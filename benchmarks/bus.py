"""Measure the bus: what a request costs, and what it costs when there is much of everything.

    python benchmarks/bus.py [--runs N] [--only NAME]

Every figure is of real processes on real repositories in a temporary folder. Ratios are taken between runs that took
turns. Prints the machine first, then a line a figure: the median, the spread, and the goal where there is one.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

from bridge import wire
from bridge.manifest import format_time
from runner.policy import load_policy
from runner.rounds import Rounds
from runner.session import open_session

MANY = 10_000
FEW = 10


@dataclass(frozen=True)
class Place:
    """A bus and a clone of it."""

    bus: Path
    clone: Path


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20, help="counted runs of each figure (default 20)")
    parser.add_argument("--only", choices=sorted(FIGURES), help="one figure instead of all")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    print(
        f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load:.1f}"
    )
    with tempfile.TemporaryDirectory(prefix="kakeya-bench-") as folder:
        home = Path(folder) / "home"
        home.mkdir()
        git_config = "[user]\n\tname = Bench\n\temail = bench@localhost\n[init]\n\tdefaultBranch = main\n"
        (home / ".gitconfig").write_text(git_config, encoding="utf-8")
        os.environ["HOME"] = str(home)
        for name in [options.only] if options.only else FIGURES:
            FIGURES[name](Path(folder) / name, options.runs)
    return 0


def start_up(folder: Path, runs: int) -> None:
    """`kakeya --help`, the whole process."""
    del folder
    show("kakeya --help", measure(runs, lambda: kakeya("--help")), goal="< 150 ms", scale=1e3, unit="ms")


def round_trip(folder: Path, runs: int) -> None:
    """`kakeya run noop --wait`: sent, claimed, run, answered; the whole client process, against a serving runner."""
    place = make(folder, files=FEW)
    with serving(folder, place):
        kakeya("-C", str(place.clone), "run", "noop", "--wait")
        times = measure(runs, lambda: kakeya("-C", str(place.clone), "run", "noop", "--wait"))
    show("kakeya run noop --wait", times, goal="p50 < 1.5 s")


def files_in_tree(folder: Path, runs: int) -> None:
    """What a request costs with 10,000 files in the tree, beside 10."""
    few, many = make(folder / "few", files=FEW), make(folder / "many", files=MANY)
    compare(f"request, {MANY} files against {FEW}", runs, many, few, goal="<= 1.2x")


def branches_on_bus(folder: Path, runs: int) -> None:
    """What a request costs with 10,000 request branches on the bus, beside 10."""
    few, many = make(folder / "few", files=FEW), make(folder / "many", files=FEW)
    add_requests(few.bus, FEW)
    add_requests(many.bus, MANY)
    compare(f"request, {MANY} branches against {FEW}", runs, many, few, goal="<= 1.5x")


def poll(folder: Path, runs: int) -> None:
    """One poll of a runner with 10,000 answered request branches on the bus."""
    place = make(folder, files=FEW)
    add_requests(place.bus, MANY)
    with open_session(load_policy(policy_for(folder, place)), lambda _: None) as session:
        rounds = Rounds(session)
        began = time.perf_counter()
        rounds.next()
        first = time.perf_counter() - began
        times = measure(runs, rounds.next)
    print(f"first poll, {MANY} branches: {first * 1e3:.0f} ms (fetches and reads them all, once)")
    show(f"later polls, {MANY} branches", times, scale=1e3, unit="ms")


def size(folder: Path, runs: int) -> None:
    """What a client-only install takes on disk. Needs a package index."""
    del runs
    root = Path(__file__).parent.parent
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
        [*pip, "--require-hashes", "-r", str(root / "requirements" / "base.txt")],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    subprocess.run(
        [*pip, "--no-deps", "--no-build-isolation", str(root)], check=True, stderr=subprocess.DEVNULL
    )
    total = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and not f.is_symlink())
    compiled = sum(f.stat().st_size for f in folder.rglob("*.pyc"))
    heavy = [name for name in ("mlx", "numpy") if (folder / name).exists()]
    print(f"client-only install: {total / 1e6:.1f} MB, {compiled / 1e6:.1f} MB of it compiled (goal < 60 MB)"
          f"; holds {', '.join(heavy) or 'neither mlx nor numpy'}")  # fmt: skip


FIGURES: dict[str, Callable[[Path, int], None]] = {
    "start-up": start_up,
    "round-trip": round_trip,
    "files": files_in_tree,
    "branches": branches_on_bus,
    "poll": poll,
    "size": size,
}


def kakeya(*args: str) -> None:
    program = Path(sys.executable).with_name("kakeya")
    subprocess.run([str(program), *args], check=True, capture_output=True)


def measure(runs: int, call: Callable[[], object]) -> list[float]:
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return times


def show(what: str, times: list[float], *, goal: str = "", scale: float = 1.0, unit: str = "s") -> None:
    ordered = sorted(t * scale for t in times)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    digits = 2 if unit == "s" else 0
    spread = f"p50 {statistics.median(ordered):.{digits}f} {unit}, p95 {p95:.{digits}f} {unit}"
    ends = f"{ordered[0]:.{digits}f} to {ordered[-1]:.{digits}f} {unit}"
    print(f"{what}: {spread} ({len(times)} runs, {ends})" + (f" (goal {goal})" if goal else ""))


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


def git(where: Path, *args: str, stdin: bytes | None = None) -> None:
    subprocess.run(["git", *args], cwd=where, check=True, input=stdin, capture_output=True)


def make(folder: Path, files: int) -> Place:
    """Make a bus and a clone with so many files in its tree, in folders of a hundred."""
    place = Place(folder / "bus.git", folder / "clone")
    for path in (place.bus, place.clone):
        path.mkdir(parents=True)
    git(place.bus, "init", "--quiet", "--bare", "--initial-branch=main")
    git(place.clone, "init", "--quiet", "--initial-branch=main")
    for i in range(files):
        path = place.clone / f"folder-{i // 100}" / f"file-{i}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{i}\n", encoding="utf-8")
    git(place.clone, "add", "--all")
    git(place.clone, "commit", "--quiet", "-m", "A workload")
    git(place.clone, "remote", "add", "origin", str(place.bus))
    git(place.clone, "push", "--quiet", "origin", "main")
    return place


def add_requests(bus: Path, count: int) -> None:
    """Put answered requests on the bus: each a request commit and an answer upon it."""
    now = int(time.time()) - count
    out = []
    for i in range(count):
        branch = f"mac-bridge/noop-{now + i}-{i:08x}"
        out.append(_commit(branch, 2 * i + 1, "refs/heads/main^0", {wire.REQUEST: "{}"}))
        state = wire.StateFile(
            schema_version=2,
            state=wire.State.SUCCEEDED,
            branch=branch,
            request="0" * 40,
            salt=f"{i:016x}",
            token=1,
            sequence=2,
            lease_s=120.0,
            runner=wire.Runner(id="bench", instance="bench", version="0"),
            at=format_time(datetime.fromtimestamp(now, UTC)),
        )
        out.append(_commit(branch, 2 * i + 2, f":{2 * i + 1}", {wire.STATE: state.to_bytes().decode()}))
    git(bus, "fast-import", "--quiet", "--done", stdin="".join([*out, "done\n"]).encode())
    git(bus, "pack-refs", "--all")


def _commit(branch: str, mark: int, parent: str, files: dict[str, str]) -> str:
    who = "Bench <bench@localhost> 0 +0000"
    head = f"commit refs/heads/{branch}\nmark :{mark}\ncommitter {who}\ndata 0\nfrom {parent}\n"
    return head + "".join(
        f"M 100644 inline {path}\ndata {len(text.encode())}\n{text}\n" for path, text in files.items()
    )


def policy_for(folder: Path, place: Place) -> Path:
    path = folder / "runner.yaml"
    settings = {
        "schema_version": 1,
        "id": "bench",
        "state": str(folder / "state"),
        "bus": {"url": str(place.bus)},
    }
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    path.chmod(0o600)
    return path


@contextmanager
def serving(folder: Path, place: Place) -> Iterator[None]:
    """Run a real runner on the bus."""
    argv = [sys.executable, "-P", "-m", "runner", "--policy", str(policy_for(folder, place)), "serve"]
    runner = subprocess.Popen(argv, stderr=subprocess.DEVNULL, cwd=folder)
    try:
        yield
    finally:
        runner.terminate()
        runner.wait(30)


if __name__ == "__main__":
    sys.exit(main())
