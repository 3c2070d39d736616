"""Benchmarks on a terminal: a table at the end."""

import statistics
from collections.abc import Sequence
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from engine.evals.speculation.arms import NATIVE
from engine.evals.speculation.claims import Table as Rows
from engine.evals.speculation.claims import decode_rate, tau
from engine.evals.verify_cost import medians

WIDTH = 100  # where the terminal is narrower, or there is none
LEGEND = """\
tok/s: decoding, median over prompts of the median over repeats; quartiles: of all runs
x, worst: times mlx-lm's rate (native), in the middle and on the worst prompt
tau: tokens a round, the target's own counted; acc: drafts accepted; syncs: waits a round
d/v/o %: drafting, verifying, overhead, told apart in one more run; KiB: live caches
same: prompts on which every repeat gave mlx-lm's tokens"""


def spec_table(report: dict[str, Any]) -> None:
    """Print an arm a line: rates, quotients, acceptance, where the time went, bytes, identity."""
    rows = Rows.of(report["rows"])
    config = report["config"]
    shown = _table(
        f"{config['model']}: {len(report['prompts'])} prompts, {config['repeats']} repeats, up to "
        f"{config['max_tokens']} tokens, {config['cache']} caches",
        "arm", "tok/s", "quartiles", "x", "worst", "tau", "acc", "syncs", "d/v/o %", "KiB", "same",
    )  # fmt: skip
    shares = _shares(report["rows"])
    for arm in report["arms"]:
        shown.add_row(*_cells(arm, rows, shares.get(arm["name"])))
    _print(shown)
    click.echo(LEGEND)


def verify_table(reports: dict[str, dict[str, Any]]) -> None:
    """Print a cache, context and length a line: median milliseconds, and times one token's."""
    shown = _table("a forward pass over L tokens", "cache", "context", "L", "ms", "times L = 1")
    for spec, report in reports.items():
        middle = medians(report["rows"])
        for context in report["config"]["contexts"]:
            one = middle.get((context, 1))
            for n in report["config"]["lengths"]:
                took = middle[context, n]
                times = f"{took / one:.2f}" if one else ""
                shown.add_row(spec, str(context), str(n), f"{1000 * took:.2f}", times)
    _print(shown)


def _print(shown: Table) -> None:
    Console(width=max(Console().width, WIDTH)).print(shown)


def _table(title: str, *heads: str) -> Table:
    shown = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left")
    for head in heads:
        shown.add_column(head, justify="left" if head == heads[0] else "right", no_wrap=True)
    return shown


def _cells(arm: dict[str, Any], rows: Rows, shares: Sequence[float] | None) -> list[str]:
    name = arm["name"]
    runs = rows.all(name)
    rates = [decode_rate(row) for row in runs]
    low, _, high = statistics.quantiles(rates, n=4, method="inclusive") if len(rates) > 1 else rates * 3
    cells = [
        name,
        f"{statistics.median(rows.per_prompt(name, decode_rate).values()):.0f}",
        f"{low:.0f}-{high:.0f}",
    ]
    quotients = rows.quotients(name, NATIVE, decode_rate) if name != NATIVE else []
    cells += [f"{statistics.median(quotients):.2f}", f"{min(quotients):.2f}"] if quotients else ["", ""]
    rounds, drafted, syncs = _sums(runs)
    cells.append(f"{tau(runs):.2f}" if rounds else "")
    cells.append(f"{sum(sum(row['accepted']) for row in runs) / drafted:.0%}" if drafted else "")
    cells.append(f"{syncs / rounds:.2f}" if rounds and syncs else "")
    cells.append("/".join(f"{100 * share:.0f}" for share in shares) if shares else "")
    cells.append(f"{max(row['memory']['cache_bytes'] for row in runs) / 1024:.0f}")
    same = rows.identical(name, arm["oracle"]) if arm["oracle"] else []
    return [*cells, f"{sum(same)}/{len(same)}" if same else ""]


def _sums(runs: Sequence[dict[str, Any]]) -> tuple[int, int, int]:
    """Return rounds, drafts and synchronisations of some runs; zeros where they were not counted."""
    return (
        sum(len(row.get("commits", ())) for row in runs),
        sum(sum(row.get("drafted", ())) for row in runs),
        sum(row.get("counters", {}).get("syncs", 0) for row in runs),
    )


def _shares(rows: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Return the medians of draft, verify and overhead shares of the arms that were profiled."""
    found: dict[str, list[tuple[float, ...]]] = {}
    for row in rows:
        if "profile" in row:
            parts = tuple(row["profile"][f"{name}_share"] for name in ("draft", "verify", "overhead"))
            found.setdefault(row["arm"], []).append(parts)
    return {
        arm: [statistics.median(part) for part in zip(*parts, strict=True)] for arm, parts in found.items()
    }
