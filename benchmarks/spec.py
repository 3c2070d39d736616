"""Measure speculative decoding on the bundled pairs: against mlx-lm's own generation and the dflash package.

    python benchmarks/spec.py [--model NAME] [--prompts FILE] [--repeats N] [--max-tokens N] [--out FOLDER]
    python benchmarks/spec.py --read FILE ...        # reports that were made before, by `make results` for instance

Arms take turns on every prompt; `kakeya-engine bench spec` prints the whole table. A pair that this checkout does
not hold is passed over; the package takes part where it is installed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

from engine import report
from engine.bench import arms, claims, package, prompts, spec, spec_report
from engine.models import load, registry

HEADLINE = "adaptive/auto"
MEDIAN, WORST, PACKAGE = 2.0, 0.97, 1.15


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="one pair instead of the bundled ones")
    parser.add_argument("--prompts", type=Path, help="JSON lines instead of the bundled prompts")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--out", type=Path, help="write the reports into this folder")
    parser.add_argument("--read", nargs="+", type=Path, metavar="FILE", help="measure nothing")
    options = parser.parse_args()
    for path in options.read or ():
        made = json.loads(path.read_text(encoding="utf-8"))
        show(made["models"][0]["id"], made)
    if options.read:
        return 0
    for name in [options.model] if options.model else registry.BUNDLED:
        if name in registry.BUNDLED and not registry.is_bundled_here(name):
            print(f"speculative decoding on {name}: skipped, this checkout does not hold the pair")
        else:
            measure(name, options)
    return 0


def measure(name: str, options: argparse.Namespace) -> None:
    plan = spec.Plan(max_tokens=options.max_tokens, repeats=options.repeats)
    source = str(options.prompts or "bundled")
    made, faults = spec_report.benchmark(load(name), prompts.read(options.prompts), plan, source=source)
    if options.out:
        report.write(options.out / f"spec-{Path(name).name}.json", made)
    show(name, made)
    for fault in faults:
        print(f"  WRONG: {fault}")


def show(name: str, made: dict) -> None:
    rows = claims.Table.of(made["rows"])
    identity = made["identity"]
    print(
        f"speculative decoding on {name}, {made['models'][0]['dtype']}, {identity['chip']}, "
        f"{identity['blas']['name']}, load {identity['load'][0]:.1f}, {len(made['prompts'])} prompts"
    )
    for arm in made["arms"]:
        if arm["role"] == "candidate":
            times = rows.quotients(arm["name"], arms.NATIVE, claims.decode_rate)
            goals = f" (goals {MEDIAN}, {WORST})" if arm["name"] == HEADLINE else ""
            print(f"  {arm['name']}: {statistics.median(times):.2f}x mlx-lm, worst {min(times):.2f}x{goals}")
            print(f"    {details(arm['name'], made, rows)}")
    if package.NAME in rows.rows:
        times = rows.quotients(package.NAME, arms.NATIVE, claims.decode_rate)
        print(f"  dflash package: {statistics.median(times):.2f}x mlx-lm, worst {min(times):.2f}x")
        over = rows.quotients(HEADLINE, package.NAME, claims.decode_rate)
        print(f"  {HEADLINE} over the package: {statistics.median(over):.2f}x (goal {PACKAGE})")
    else:
        print("  the dflash package is not installed: not compared")


def details(arm: str, made: dict, rows: claims.Table) -> str:
    runs = rows.all(arm)
    syncs = sum(row["counters"]["syncs"] for row in runs) / sum(len(row["commits"]) for row in runs)
    told = [row["profile"] for row in made["rows"] if row["arm"] == arm and "profile" in row]
    shares = [statistics.median(p[f"{part}_share"] for p in told) for part in ("draft", "verify", "overhead")]
    held = max(row["memory"]["cache_bytes"] for row in runs)
    same = rows.identical(arm, arms.NATIVE)
    return (
        f"{claims.tau(runs):.2f} tokens and {syncs:.2f} synchronisations a round; draft, verify, overhead "
        f"{' / '.join(f'{share:.0%}' for share in shares)}; live caches {held / 1024:.0f} KiB; "
        f"mlx-lm's tokens on {sum(same)} of {len(same)} prompts"
    )


if __name__ == "__main__":
    sys.exit(main())
