"""Measure the engine through a runner, which signs each run, and write docs/results.md and docs/results/tiny.md.

A real model comes first, if it is here (`make real` gets it), then the bundled pairs.

    python -m benchmarks.results                     # everything (`make results`, part of `make bench`)
    python -m benchmarks.results --only spec-tiny    # measure this one anew, keep the others
    python -m benchmarks.results --render            # write the pages again from the reports that are kept
    python -m benchmarks.results --quick             # as little of each as there can be; pages and reports in build/

Each report X.json lies in docs/results beside X.run, which vouches for it, signed with a key in the file runner.pub
there: `kakeya gate docs/results` accepts the published figures again. What the gate does not accept is named on a page
with its verdict alone. If a run was measured again, its page says so, with the earlier verdicts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import yaml

from benchmarks.results_kept import KEY, ROOT, Kept, read, remember
from benchmarks.results_page import of_pairs, page
from benchmarks.results_runs import Run, runs
from bridge.cli.measure import KEY_FOLDER
from bridge.demo.walkthrough import MODELS
from bridge.preset_run import run_preset
from bridge.reports import kinds
from bridge.verify.public_keys import find_pin
from engine.cli.bench.show import show_decoding

PAGE, PUBLISHED = ROOT / "docs" / "results.md", ROOT / "docs" / "results"
PAIRS_PAGE = "tiny.md"  # beside the reports


class NoReportError(Exception):
    """A run ended without its report; the text says why."""


def main() -> int:
    """Measure what was asked for, then write the pages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = {run.name: run for run in runs()}
    parser.add_argument("--only", nargs="+", choices=known, metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--quick", action="store_true", help="as little of each as the gate takes")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--reports", type=Path, metavar="DIR", help="[default: build/results]")
    parser.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        help="[default: docs/results.md]; the bundled pairs' page is written beside the reports",
    )
    options = parser.parse_args()
    folder = options.reports or (ROOT / "build" / "results-quick" if options.quick else PUBLISHED)
    target = options.page or (folder / "results.md" if options.quick else PAGE)
    whole = True
    for name in [] if options.render else options.only or known:
        if known[name].lacks:
            print(f"{name}: left out, {known[name].lacks}")
            continue
        began = time.monotonic()
        try:
            kept = measure_anew(known[name], folder, quick=options.quick)
        except NoReportError as error:
            print(f"{name}: {error}", flush=True)
            whole = False
            continue
        print(f"{name}: {kept.said} in {time.monotonic() - began:.0f} s", flush=True)
        if kept.measured["kind"] == kinds.SPEC_BENCH:
            show_decoding(kept.measured)
    runs_kept = [kept for run in known.values() if (kept := read(folder, run.name, run.argv))]
    pairs = [run for run in runs_kept if of_pairs(run)]
    target.write_text(page([run for run in runs_kept if run not in pairs]), encoding="utf-8")
    behind = folder / PAIRS_PAGE
    behind.write_text(page(pairs, behind=True), encoding="utf-8")
    accepted = sum(run.accepted for run in runs_kept)
    print(f"wrote {target} and {behind}: {accepted} of {len(runs_kept)} reports are accepted")
    return 0 if whole else 1


def measure_anew(run: Run, folder: Path, *, quick: bool = False, key_folder: Path | None = None) -> Kept:
    """Measure a run through a runner on this machine, and keep its report with its run file in a folder.

    Without ``key_folder``, the key of `kakeya measure` signs, and its public half is published beside the code.

    Raises:
        NoReportError: with the reason of the answer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    before = read(folder, run.name, run.argv)
    keys = key_folder or Path(KEY_FOLDER).expanduser()
    with tempfile.TemporaryDirectory() as presets:
        preset = Path(presets) / f"{run.name}.yaml"
        preset.write_text(yaml.safe_dump(run.preset(quick=quick)), encoding="utf-8")
        settings = MODELS | run.environment
        done = run_preset(run.name, {}, folder, settings, key_folder=keys, preset_folder=Path(presets))
    if key_folder is None:
        _publish_key(done.public_key.read_text(encoding="ascii"))
    if not done.reports:
        raise NoReportError(f"no report: {done.result.reason.message}")
    if before:
        remember(folder, run.name, before.said)
    kept = read(folder, run.name, run.argv, find_pin(None, "", done.public_key))
    if kept is None:
        raise NoReportError(f"no report is called {run.name}.json")
    return kept


def _publish_key(text: str) -> None:
    """Add a public key to those that readers of this repository pin."""
    KEY.parent.mkdir(exist_ok=True)
    known = KEY.read_text(encoding="ascii") if KEY.exists() else ""
    if text not in known:
        KEY.write_text(known + text, encoding="ascii")


if __name__ == "__main__":
    sys.exit(main())
