"""Get the real model and measure a little of it through a runner: `make real`.

    python -m benchmarks.real           # the short versions: some minutes on two cores

Prints the figures of each report with the gate's verdict. `python -m benchmarks.results --only NAME` measures in full.
"""

from __future__ import annotations

import shutil
import sys
import time

from benchmarks.results import NoReportError, measure_anew
from benchmarks.results_kept import ROOT, Row
from benchmarks.results_runs import REAL, of_real_model
from bridge.common.cli.progress import download
from bridge.common.drawing.text import number
from engine.errors import EngineError
from engine.models.get import get

FOLDER = ROOT / "build" / "real"
MEASURED = tuple(f"{name}-{REAL}" for name in ("spec-humaneval-64", "kv-quant", "pass-at-1"))
SHOWN = (
    "decode_tok_s", "plain_speedup", "worst_plain_speedup", "accept_length", "identical_outputs",
    "stored_bits_per_value", "kl", "perplexity", "pass_at_1",
)  # fmt: skip


def main() -> int:
    """Return 0 if the gate accepts every report, 1 if it does not, and 3 if there is no model.

    What lacks something on this machine is left out.
    """
    try:
        print(f"model: {get(REAL, print, download)}", flush=True)
    except EngineError as error:
        print(f"error: {error.message}\nfix: {error.fix}", file=sys.stderr)
        return 3
    runs = [run for run in of_real_model() if run.name in MEASURED]
    shutil.rmtree(FOLDER, ignore_errors=True)
    accepted = True
    for run in runs:
        if run.lacks:
            print(f"\n{run.name}: left out, {run.lacks}", flush=True)
            continue
        began = time.monotonic()
        try:
            kept = measure_anew(run, FOLDER, quick=True, key_folder=FOLDER / "key")
        except NoReportError as error:
            print(f"\n{run.name}: {error}", flush=True)
            accepted = False
            continue
        print(f"\n{run.name}: {kept.said} in {time.monotonic() - began:.0f} s", flush=True)
        accepted = accepted and kept.accepted
        for line in figures(kept.measured):
            print(f"  {line}")
    print(f"\nreports: {FOLDER.relative_to(ROOT)}")
    return 0 if accepted else 1


def figures(report: Row) -> list[str]:
    """Return a line for each arm with its claims about the whole report."""
    lines: dict[str, list[str]] = {}
    for claim in report["claims"]:
        if claim["name"] in SHOWN and not claim.get("where"):
            interval = claim.get("interval")
            spread = f" ({number(interval[0])} to {number(interval[1])})" if interval else ""
            lines.setdefault(claim["arm"], []).append(f"{claim['name']} {number(claim['value'])}{spread}")
    return [f"{arm}: {', '.join(some)}" for arm, some in lines.items()]


if __name__ == "__main__":
    sys.exit(main())
