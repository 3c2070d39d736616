"""What a report on speculative decoding says, beside the goals: speed over plain loops and the dflash package."""

from __future__ import annotations

import statistics

from benchmarks.results_kept import Row
from bridge.reports.claims import decoding as claims
from bridge.reports.counted import CountedRows
from engine.evals.speculation import arms

KIND = "kakeya.spec-bench"
HEADLINE = "adaptive/auto"
MEDIAN, WORST, PACKAGE = 2.0, 0.97, 1.15


def show(made: Row) -> None:
    """Print the median and the worst prompt of each arm beside the goals, what a round costs, and what is held."""
    rows = CountedRows(made["rows"])
    identity = made["identity"]
    print(
        f"speculative decoding on {made['models'][0]['id']}, {made['models'][0]['dtype']}, {identity['chip']}, "
        f"{identity['blas']['name']}, load {identity['load'][0]:.1f}, {len(made['prompts'])} prompts"
    )
    paired = claims.paired_speedups(rows, made["arms"])
    for arm in made["arms"]:
        if arm["role"] == "candidate":
            over = [statistics.median(ratios.values()) for ratios in paired[arm["name"]].values()]
            print(
                f"  {arm['name']}: {statistics.median(over):.2f}x the fastest plain loop, worst {min(over):.2f}x"
            )
            times = rows.ratios(arm["name"], arms.NATIVE)
            goals = f" (goals {MEDIAN}, {WORST})" if arm["name"] == HEADLINE else ""
            print(f"    {statistics.median(times):.2f}x mlx-lm, worst {min(times):.2f}x{goals}")
            print(f"    {_details(arm['name'], made, rows)}")
    if arms.PACKAGE in rows.by_arm:
        times = rows.ratios(arms.PACKAGE, arms.NATIVE)
        print(f"  dflash package: {statistics.median(times):.2f}x mlx-lm, worst {min(times):.2f}x")
        over = rows.ratios(HEADLINE, arms.PACKAGE)
        print(f"  {HEADLINE} over the package: {statistics.median(over):.2f}x (goal {PACKAGE})")
    else:
        print("  the dflash package is not installed: not compared")


def _details(arm: str, made: Row, rows: CountedRows[Row]) -> str:
    runs = rows.of(arm)
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
