"""Count how the gate judges the defaults of the presets that make claims, on the bundled models.

    python benchmarks/verdicts.py [--runs N] [--models NAME] [--only PRESET]

Real jobs over a real bus, one after the other. On a quiet machine every run should be accepted. INCOMPLETE says what to
measure again; REJECTED says that something in the report is wrong, so an honest run must never be.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from common import Figure, make, options_of, print_figures, serving

from bridge.presets.load import load_presets


def judge(preset: str, folder: Path, options: argparse.Namespace) -> None:
    """Run one preset's defaults several times and count the verdicts."""
    place = make(folder)
    env = {"KAKEYA_MAC_VERIFIER_PATH": options.models, "KAKEYA_MAC_DRAFTER_ID": options.models}
    verdicts: Counter[str] = Counter()
    codes: Counter[str] = Counter()
    seconds = []
    with serving(folder, place, env=env):
        for _ in range(options.runs):
            began = time.perf_counter()
            answer = ask(place.clone, preset)
            seconds.append(time.perf_counter() - began)
            gate = answer["gate"] or {"verdict": unjudged(answer), "violations": []}
            verdicts[gate["verdict"]] += 1
            codes.update({violation["code"] for violation in gate["violations"]})
            for violation in gate["violations"]:
                print(f"  {violation['code']}: {violation['message']}", flush=True)
    counted = ", ".join(f"{count} {name}" for name, count in sorted(verdicts.items()))
    broken = ", ".join(f"{code} {count}" for code, count in codes.most_common())
    typical = f"{statistics.median(seconds):.0f} s a run"
    print(f"{preset} ({options.models}): {counted}; {typical}; broken rules: {broken or 'none'}", flush=True)


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


FIGURES: dict[str, Figure] = {
    name: partial(judge, name) for name, preset in load_presets().items() if preset.gated
}

if __name__ == "__main__":
    parser = options_of(__doc__, runs=10)
    parser.add_argument("--models", default="tiny", help="the bundled model and drafter (default tiny)")
    sys.exit(print_figures(parser, FIGURES))
