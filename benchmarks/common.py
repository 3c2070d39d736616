"""What the benchmarks of the bus and of the runner share: places to measure in, and how a figure is printed."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from bridge.bus import wire
from bridge.manifest import format_time
from bridge.verify.state_signature import signed_message

if TYPE_CHECKING:
    from securesystemslib.signer import Signer

FEW = 10
GIT_CONFIG = "[user]\n\tname = Bench\n\temail = bench@localhost\n[init]\n\tdefaultBranch = main\n"

Figure = Callable[[Path, argparse.Namespace], None]


@dataclass(frozen=True)
class Place:
    """A bus and a clone of it."""

    bus: Path
    clone: Path


def options_of(doc: str | None, runs: int) -> argparse.ArgumentParser:
    """Return what reads the command line of a benchmark."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--runs", type=int, default=runs, help=f"counted runs of each figure (default {runs})"
    )
    return parser


def print_figures(parser: argparse.ArgumentParser, figures: Mapping[str, Figure]) -> int:
    """Print the machine, then the figure that was asked for or all of them, each in a folder of its own."""
    parser.add_argument("--only", choices=sorted(figures), help="one figure instead of all")
    options = parser.parse_args()
    print_machine()
    with own_home() as folder:
        for name in [options.only] if options.only else figures:
            place = folder / name
            place.mkdir()
            figures[name](place, options)
    return 0


def print_machine() -> None:
    """Print what the figures are of."""
    cores, python, load = os.cpu_count(), platform.python_version(), os.getloadavg()[0]
    print(f"{platform.platform()}, {cores} cores, Python {python}, load {load:.1f}")


@contextmanager
def own_home() -> Iterator[Path]:
    """Give this process a home without settings, and return a folder to work in."""
    with tempfile.TemporaryDirectory(prefix="kakeya-bench-") as name:
        home = Path(name) / "home"
        home.mkdir()
        (home / ".gitconfig").write_text(GIT_CONFIG, encoding="utf-8")
        os.environ["HOME"] = str(home)
        # As installed: a program that is compiled anew each time measures Python's compiler.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(name) / "compiled")
        yield Path(name)


def measure(runs: int, call: Callable[[], object]) -> list[float]:
    """Return how many seconds each call took."""
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return times


def show(
    what: str, times: list[float], *, goal: str = "", scale: float = 1.0, unit: str = "s", digits: int = 2
) -> None:
    """Print the median, the spread, and the goal where there is one."""
    ordered = sorted(t * scale for t in times)
    p95 = ordered[round(0.95 * (len(ordered) - 1))]
    spread = f"p50 {statistics.median(ordered):.{digits}f} {unit}, p95 {p95:.{digits}f} {unit}"
    ends = f"{ordered[0]:.{digits}f} to {ordered[-1]:.{digits}f} {unit}"
    print(f"{what}: {spread} ({len(times)} runs, {ends})" + (f" (goal {goal})" if goal else ""))


def git(where: Path, *args: str, stdin: bytes | None = None) -> None:
    subprocess.run(["git", *args], cwd=where, check=True, input=stdin, capture_output=True)


def make(folder: Path, files: int = FEW) -> Place:
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


def sign_states(bus: Path, signer: Signer) -> None:
    """Replace the commit of each answer by one that is signed."""
    fields = "%(refname:lstrip=2) %(parent) %(tree)"
    listed = subprocess.run(
        ["git", "for-each-ref", f"--format={fields}", "refs/heads/mac-bridge/"],
        cwd=bus,
        check=True,
        capture_output=True,
        text=True,
    )
    out = []
    for line in listed.stdout.splitlines():
        branch, parent, tree = line.split()
        message = signed_message("kakeya: succeeded\n", signer, branch=branch, parent=parent, tree=tree)
        head = f"commit refs/heads/{branch}\ncommitter Bench <bench@localhost> 0 +0000\n"
        out.append(f'{head}data {len(message)}\n{message}\nfrom {parent}\nM 040000 {tree} ""\n')
    git(bus, "fast-import", "--quiet", "--done", "--force", stdin="".join([*out, "done\n"]).encode())
    git(bus, "pack-refs", "--all")


def _commit(branch: str, mark: int, parent: str, files: dict[str, str]) -> str:
    who = "Bench <bench@localhost> 0 +0000"
    head = f"commit refs/heads/{branch}\nmark :{mark}\ncommitter {who}\ndata 0\nfrom {parent}\n"
    return head + "".join(
        f"M 100644 inline {path}\ndata {len(text.encode())}\n{text}\n" for path, text in files.items()
    )


def policy_for(folder: Path, place: Place, **more: object) -> Path:
    """Write the policy of a runner that serves a place."""
    path = folder / "runner.yaml"
    bus = {"url": str(place.bus)}
    settings = {"schema_version": 1, "id": "bench", "state": str(folder / "state"), "bus": bus, **more}
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    path.chmod(0o600)
    return path


@contextmanager
def serving(folder: Path, place: Place, **more: object) -> Iterator[None]:
    """Run a real runner on the bus."""
    argv = [sys.executable, "-P", "-m", "runner", "--policy", str(policy_for(folder, place, **more)), "serve"]
    runner = subprocess.Popen(argv, stderr=subprocess.DEVNULL, cwd=folder)
    try:
        yield
    finally:
        runner.terminate()
        runner.wait(30)
