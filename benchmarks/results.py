"""Measure the engine on the bundled pairs, let the gate judge each report, and write docs/results.md.

    python -m benchmarks.results                     # everything (`make results`, part of `make bench`)
    python -m benchmarks.results --only spec-tiny    # measure this one anew, keep the others
    python -m benchmarks.results --render            # write the page again from the reports that are kept
    python -m benchmarks.results --quick             # as little of each as there can be; page and reports in build/

Reports, plots, logs and a note on each run are kept in build/results. When docs/results.md is written, reports and
notes are copied to docs/results, which is committed: `kakeya gate docs/results` judges the published figures again.
What the gate does not accept is named on the page with its verdict alone. Of a run that is measured again the page says
so, and what was said of it before.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import results_speed
from benchmarks.results_kept import Kept, keep, note_of, read, report_of
from benchmarks.results_page import page

ROOT = Path(__file__).parents[1]
PAIRS = ("tiny", "tiny-hybrid")
# Divergences hardly vary between prompts: few show them.
RESTORED = {
    "tiny": {"restored": "--samples 3"},
    "tiny-hybrid": {
        "restored": "--layers full --samples 3",
        "restored-sliding": "--layers sliding --lengths 256,512 --depths 0.1 --samples 3",
    },
}
PAGE, PUBLISHED = ROOT / "docs" / "results.md", ROOT / "docs" / "results"


@dataclass(frozen=True)
class Run:
    """One command of kakeya-engine that leaves one report, and what makes it short."""

    name: str
    argv: tuple[str, ...]
    quick: tuple[str, ...] = ()
    needs: str = ""

    @property
    def able(self) -> bool:
        """Return whether the package that it compares with is installed."""
        return not self.needs or importlib.util.find_spec(self.needs) is not None

    def command(self, *, quick: bool) -> list[str]:
        """Return its arguments: the last of two options of a name counts."""
        return [*self.argv, *(self.quick if quick else ())]


def runs() -> list[Run]:
    """Return everything that is measured, in this order."""
    found = [Run("codec-rd", ("codec", "rd"), ("--n-vectors", "256"))]
    for pair in PAIRS:
        found += _of_pair(pair)
    return found


def _of_pair(pair: str) -> list[Run]:
    few, caches = ("--max-prompts", "2"), ("--caches", "affine@4g64,e8v@4.25")
    places = ("--samples", "2", "--depths", "0.1,0.3,0.5")
    restored = (*places, "--caches", "e8v@4.25", "--lengths", "512")

    def run(name: str, command: str, *quick: str, needs: str = "") -> Run:
        group, sub, *more = command.split()
        return Run(f"{name}-{pair}", (group, sub, "--model", pair, *more), quick, needs)

    return [
        run(
            "spec",
            "bench spec --max-tokens 64 --max-repeats 11",
            *few,
            "--repeats",
            "3",
            "--max-repeats",
            "3",
            "--max-tokens",
            "40",
        ),
        run("verify-l", "bench verify-l", "--contexts", "128", "--repeats", "5"),
        run("parity-package", "eval parity --max-prompts 10", *few, needs="dflash"),
        run("parity-half", "eval parity --against float32 --max-prompts 10", *few),
        run("kv-quant", "eval kv-quant --max-prompts 5", *few, *caches, "--tokens", "64"),
        run("recall", "eval recall --samples 3", *places, *caches, "--lengths", "256"),
        *(run(name, f"eval restored-prefill {asked}", *restored) for name, asked in RESTORED[pair].items()),
    ]


def main() -> int:
    """Measure what was asked for, then write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = {run.name: run for run in runs()}
    parser.add_argument("--only", nargs="+", choices=known, metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--quick", action="store_true", help="as little of each as the gate takes")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--reports", type=Path, metavar="DIR", help="[default: build/results]")
    parser.add_argument("--page", type=Path, metavar="FILE", help="[default: docs/results.md]")
    options = parser.parse_args()
    build = (
        PUBLISHED if options.render else ROOT / "build" / ("results-quick" if options.quick else "results")
    )
    folder = options.reports or build
    target = options.page or (folder / "results.md" if options.quick else PAGE)
    whole = True
    for name in [] if options.render else options.only or known:
        if not known[name].able:
            print(f"{name}: left out, {known[name].needs} is not installed")
            continue
        began = time.monotonic()
        found = measure(known[name], folder, quick=options.quick)
        print(f"{name}: {found.said} in {time.monotonic() - began:.0f} s", flush=True)
        whole = whole and bool(found.report)
        if found.report and found.measured["kind"] == results_speed.KIND:
            results_speed.show(found.measured)
    if target == PAGE:
        folder = publish(folder, list(known))
    kept = [found for name in known if (found := read(folder, name))]
    target.write_text(page(kept, earlier(folder)), encoding="utf-8")
    print(f"wrote {target}: {sum(run.accepted for run in kept)} of {len(kept)} reports are accepted")
    return 0 if whole else 1


def publish(folder: Path, names: Sequence[str], to: Path = PUBLISHED) -> Path:
    """Copy what a folder holds of the named runs, reports and notes, to where they are committed, and return that."""
    to.mkdir(exist_ok=True)
    for name in () if folder.resolve() == to.resolve() else names:
        if note_of(folder, name).exists():
            shutil.copyfile(note_of(folder, name), note_of(to, name))
            report_of(to, name).unlink(missing_ok=True)
            if report_of(folder, name).exists():
                report_of(to, name).write_bytes(placeless(report_of(folder, name).read_bytes()))
    return to


def placeless(data: bytes) -> bytes:
    """Return a report in one line, a third of its size, without the BLAS library's folder: a place on the machine."""
    report = json.loads(data)
    blas = report.get("identity", {}).get("blas", {})
    if blas.get("library"):
        blas["library"] = Path(blas["library"]).name
    return json.dumps(report).encode()


def earlier(folder: Path) -> str:
    """Return the section on figures whose reports were not kept, which is written by hand; nothing without one."""
    file = folder / "earlier.md"
    return file.read_text(encoding="utf-8") if file.exists() else ""


def environ() -> dict[str, str]:
    """Return the environment of the runs: one thread, with which models this small decode fastest without drafts."""
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


def measure(run: Run, folder: Path, *, quick: bool = False) -> Kept:
    """Run a command, and keep its report, its output and a note on it. What an interrupted run left is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    argv = tuple(run.command(quick=quick))
    before, report = read(folder, run.name), report_of(folder, run.name)
    for old in folder.glob(f"{report.name}*"):
        old.unlink()
    with (folder / f"{run.name}.log").open("wb") as log:
        command = [sys.executable, "-P", "-m", "engine", *argv, "--out", str(report)]
        ended = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=environ(), check=False)
    earlier = (*before.earlier, before.said) if before and before.argv == argv else ()
    data = report.read_bytes() if report.exists() else b""
    found = Kept(run.name, argv, ended.returncode, earlier, data)
    keep(folder, found)
    return found


if __name__ == "__main__":
    sys.exit(main())
