"""Benchmarks on a terminal: a bar while they run, a table at the end."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from engine.bench.claims import Table as Rows
from engine.bench.claims import decode_rate, tau


@contextmanager
def progress(what: str) -> Iterator[tuple[Callable[[int], None], Callable[[], None]]]:
    """Show a bar on standard error; yield what to call with the number of runs, and after each run."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda total: bar.update(task, total=total), lambda: bar.advance(task)


def spec_table(report: dict[str, Any]) -> None:
    """Print an arm a line: rates, quotients, acceptance, where the time went, bytes, identity."""
    rows = Rows.of(report["rows"])
    claimed = {
        (c["name"], c["arm"]): c for c in report["claims"] if c.get("against", "native") == "native"
    }
    shares = _shares(report["rows"])
    config = report["config"]
    shown = Table(
        title=f"{config['model']}, {len(report['prompts'])} prompts, {config['repeats']} repeats, "
        f"up to {config['max_tokens']} tokens, {config['cache']} caches",
        caption="tok/s: median over prompts (quartiles of all runs). tau: tokens a round, the target's own "
        "counted. identical: prompts with mlx-lm's tokens in every repeat. draft/verify/rest: measured apart.",
    )
    heads = (
        "arm", "tok/s", "x mlx-lm", "worst", "tau", "accepted", "syncs/round", "draft/verify/rest", "cache KiB",
        "identical",
    )  # fmt: skip
    for head in heads:
        shown.add_column(head, justify="left" if head == "arm" else "right", no_wrap=head != "draft/verify/rest")
    for arm in report["arms"]:
        shown.add_row(*_cells(arm, rows, claimed, shares.get(arm["name"])))
    console = Console()
    console.print(shown)
    for name, why in config["left_out"].items():
        console.print(f"left out: {name}: {why}")


def _cells(
    arm: dict[str, Any], rows: Rows, claimed: dict[tuple[str, str], Any], shares: Sequence[float] | None
) -> list[str]:
    name = arm["name"]
    runs = rows.all(name)
    rates = [decode_rate(row) for row in runs]
    middle = statistics.median(rows.per_prompt(name, decode_rate).values())
    spread = ""
    if len(rates) > 1:
        low, _, high = statistics.quantiles(rates, n=4, method="inclusive")
        spread = f" ({low:.0f}-{high:.0f})"
    cells = [name, f"{middle:.0f}{spread}"]
    for claim in ("decode_speedup", "worst_speedup"):
        found = claimed.get((claim, name))
        cells.append(f"{found['value']:.2f}" if found else "")
    counted = "commits" in runs[0]
    cells.append(f"{tau(runs):.2f}" if counted else "")
    rate = claimed.get(("accept_rate", name))
    cells.append(f"{rate['value']:.0%}" if rate else "")
    rounds, syncs = (sum(row.get("counters", {}).get(key, 0) for row in runs) for key in ("rounds", "syncs"))
    cells.append(f"{syncs / rounds:.2f}" if rounds and syncs else "")
    cells.append("/".join(f"{share:.0%}" for share in shares) if shares else "")
    cells.append(f"{claimed['cache_bytes', name]['value'] / 1024:.0f}")
    if arm["oracle"] is None:
        return [*cells, ""]
    same = rows.identical(name, arm["oracle"])
    return [*cells, f"{sum(same)}/{len(same)}"]


def _shares(rows: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Return the medians of draft, verify and overhead shares of the arms that were profiled."""
    found: dict[str, list[tuple[float, ...]]] = {}
    for row in rows:
        if "profile" in row:
            parts = tuple(row["profile"][f"{name}_share"] for name in ("draft", "verify", "overhead"))
            found.setdefault(row["arm"], []).append(parts)
    return {arm: [statistics.median(part) for part in zip(*parts, strict=True)] for arm, parts in found.items()}
