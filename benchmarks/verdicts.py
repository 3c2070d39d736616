"""Count how the gate judges the defaults of the presets that make claims, on the bundled models.

    python benchmarks/verdicts.py [--runs N] [--models NAME] [--only PRESET] [--minutes M] [--record FILE]
    python benchmarks/verdicts.py --table FILE

Real jobs over a real bus, one after the other. On a quiet machine every run should be accepted. INCOMPLETE says what to
measure again; REJECTED says that something in the report is wrong, so an honest run must never be.

Every round runs each preset once, so a count that is cut short is about equally long for all. With --record, each run
adds a line to a file, and --table prints the counts of such a file.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common import Place, make, options_of, own_home, print_machine, serving

from bridge.presets.load import load_presets

GATED = sorted(name for name, preset in load_presets().items() if preset.gated)


@dataclass(frozen=True)
class Judged:
    """One run: what the gate said of it, the rules that were broken, and what it took."""

    preset: str
    models: str
    verdict: str
    codes: list[str]
    seconds: int
    load: float
    commit: str


def judge(place: Place, preset: str, models: str, commit: str) -> Judged:
    """Run a preset's defaults once, and print what was found."""
    load, began = os.getloadavg()[0], time.perf_counter()
    answer = ask(place.clone, preset)
    seconds = round(time.perf_counter() - began)
    gate = answer["gate"] or {"verdict": unjudged(answer), "violations": []}
    found = [violation["code"] for violation in gate["violations"]]
    codes = sorted(set(found))
    print(f"{preset} ({models}): {gate['verdict']} in {seconds} s {', '.join(codes)}".rstrip(), flush=True)
    for violation in gate["violations"]:
        print(f"  {violation['code']}: {violation['message']}", flush=True)
    return Judged(preset, models, gate["verdict"], codes, seconds, round(load, 1), commit)


def unjudged(answer: dict[str, Any]) -> str:
    """Say how a request ended that no gate has judged."""
    reason = answer["reason"]
    return f"{answer['state']} ({reason['code']}: {reason['message']})" if reason else answer["state"]


def ask(clone: Path, preset: str) -> dict[str, Any]:
    """Request a job, wait for its answer, and return the last event that `kakeya run --json` prints."""
    program = str(Path(sys.executable).with_name("kakeya"))
    argv = [program, "-C", str(clone), "run", preset, "--wait", "--json"]
    ended = subprocess.run(argv, capture_output=True, check=False)
    events = [json.loads(line) for line in ended.stdout.splitlines()]
    return next(event for event in events if event["event"] == "answer")


def rounds(folder: Path, options: argparse.Namespace) -> Iterator[Judged]:
    """Run the presets in turn, until each has its runs or no further one should begin."""
    until = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    argv = ["git", "rev-parse", "--short", "HEAD"]
    told = subprocess.run(argv, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    commit = told.stdout.strip() or "unknown"
    env = {"KAKEYA_MAC_VERIFIER_PATH": options.models, "KAKEYA_MAC_DRAFTER_ID": options.models}
    with ExitStack() as stack:
        place = make(folder)
        stack.enter_context(serving(folder, place, env=env))
        for _ in range(options.runs):
            for preset in options.only or GATED:
                if time.monotonic() > until:
                    return
                yield judge(place, preset, options.models, commit)


def table(runs: Iterable[Judged]) -> str:
    """Return the counts in Markdown, one line a preset and pair of models."""
    grouped: dict[tuple[str, str], list[Judged]] = {}
    for run in runs:
        grouped.setdefault((run.preset, run.models), []).append(run)
    lines = [
        "| preset | models | runs | ACCEPTED | INCOMPLETE | REJECTED | rules broken | median run |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (preset, models), some in sorted(grouped.items()):
        verdicts = Counter(run.verdict for run in some)
        counts = [verdicts.pop(name, 0) for name in ("ACCEPTED", "INCOMPLETE", "REJECTED")]
        codes = Counter(code for run in some for code in run.codes) + Counter(verdicts)
        broken = ", ".join(f"{code} {count}" for code, count in codes.most_common())
        seconds = f"{statistics.median(run.seconds for run in some):.0f} s"
        cells = [f"`{preset}`", f"`{models}`", len(some), *counts, broken, seconds]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def recorded(path: Path) -> list[Judged]:
    """Return the runs of a file that --record wrote."""
    return [Judged(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> int:
    parser = options_of(__doc__, runs=10)
    parser.add_argument("--models", default="tiny", help="the bundled model and drafter (default tiny)")
    parser.add_argument("--only", choices=GATED, action="append", help="this preset; may be repeated")
    parser.add_argument("--minutes", type=float, help="begin no run after so many minutes")
    parser.add_argument("--record", type=Path, help="file to which each run adds a line")
    parser.add_argument("--table", type=Path, help="print the counts of such a file, and run nothing")
    options = parser.parse_args()
    if options.table:
        print(table(recorded(options.table)))
        return 0
    print_machine()
    # The home is about to be another one, and the file is wherever the caller stands.
    record = options.record.absolute() if options.record else None
    runs = []
    with own_home() as folder:
        for judged in rounds(folder, options):
            runs.append(judged)
            if record:
                with record.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(asdict(judged)) + "\n")
    print(table(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
