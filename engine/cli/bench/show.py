"""Benchmarks on a terminal: a table at the end."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import click
from rich import box
from rich.table import Table

from bridge.reports.claims.decoding import acceptance_rate, loop_crossovers, paired_speedups, tau
from bridge.reports.claims.verify import passes_of
from bridge.reports.claims.why_no_speed import why_no_speed
from bridge.reports.counted import CountedRows, decode_rate
from engine.cli.reporting import print_table
from engine.evals.speculation.arms import NATIVE

LEGEND = """\
tok/s: decoding speed, median over prompts of the median over repeats; quartiles: of all runs
x, worst: speed relative to the fastest loop without drafts, median and worst prompt; x mlx-lm: to native
tau: tokens per round, with the target's own; acc: drafts accepted; syncs: waits per round
d/v/o %: drafting, verifying, overhead, measured in a separate run; KiB: live caches
same: prompts on which every repeat produced mlx-lm's tokens"""
ROUND_LEGEND = "ms a round: median per round of drafting, queueing the verification, waiting for the device"


def spec_table(report: dict[str, Any]) -> None:
    """Print one line per arm: rates, ratios, acceptance, shares of time, bytes, identity."""
    rows = CountedRows(report["rows"])
    config = report["config"]
    repeats = len({row["repeat"] for row in report["rows"] if not row["warmup"]})
    shown = _table(
        f"{config['model']}: {len(report['prompts'])} prompts, {repeats} repeats, up to "
        f"{config['max_tokens']} tokens, {config['cache']} caches",
        "arm", "tok/s", "quartiles", "x", "worst", "x mlx-lm", "tau", "acc", "syncs", "d/v/o %", "KiB", "same",
    )  # fmt: skip
    paired = paired_speedups(rows, report["arms"])
    for arm in report["arms"]:
        name = arm["name"]
        over = [statistics.median(ratios.values()) for ratios in paired.get(name, {}).values()]
        profiles = [row["profile"] for row in report["rows"] if row["arm"] == name and "profile" in row]
        shown.add_row(*_cells(arm, rows, over, profiles))
    print_table(shown)
    click.echo(LEGEND)
    for sentence in (*_headline(report["claims"]), *why_no_speed(report)):
        click.echo(sentence)
    _show_scales(report["arms"], rows)
    if any("round_s" in row for row in report["rows"]):
        _rounds_table(report)


def _headline(claims: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the greatest claimed speed-up as a sentence."""
    speedups = [c for c in claims if c["name"] == "plain_speedup" and not c.get("where", {}).get("workload")]
    if speedups:
        best = max(speedups, key=lambda claim: float(claim["value"]))
        low, high = best["interval"]
        sentence = f"speed-up of {best['arm']}: {best['value']:.2f} over the fastest loop without drafts"
        yield f"{sentence} ({low:.2f} to {high:.2f} by prompt)"


def _show_scales(arms: Sequence[dict[str, Any]], rows: CountedRows[Any]) -> None:
    """Print the factor of the drafter's embeddings; with several, what each arm with one accepts."""
    scales = {arm["name"]: arm["options"]["embed_scale"] for arm in arms if "embed_scale" in arm["options"]}
    if len({*scales.values()}) == 1:
        click.echo(f"the drafter reads embeddings times {next(iter(scales.values())):g}")
        return
    for name, scale in scales.items():
        accepted = sum(sum(row["accepted"]) for row in rows.of(name))
        drafted = sum(sum(row.get("drafted", ())) for row in rows.of(name))
        click.echo(f"{name}: embeddings times {scale:g}, {accepted} of {drafted} drafts accepted")


def _rounds_table(report: dict[str, Any]) -> None:
    """Print the time per round of each loop and context, and from which context on one graph is slower."""
    of = {prompt["id"]: prompt["workload"] for prompt in report["prompts"]}
    by_length = sorted(report["prompts"], key=lambda prompt: prompt["n_tokens"])
    contexts: dict[str, int] = {prompt["workload"]: prompt["n_tokens"] for prompt in by_length}
    shown = _table("ms a round", "arm", "context", "draft", "verify", "wait", "longest wait")
    seconds: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in report["rows"]:
        if "round_s" in row and not row["warmup"]:
            by_stage = seconds.setdefault((row["arm"], of[row["prompt"]]), {})
            for name, some in row["round_s"].items():
                by_stage.setdefault(name, []).extend(some)
    for (arm, workload), parts in seconds.items():
        middles = [f"{1000 * statistics.median(parts[name]):.2f}" for name in ("draft", "verify", "wait")]
        shown.add_row(arm, str(contexts[workload]), *middles, f"{1000 * max(parts['wait']):.2f}")
    print_table(shown)
    click.echo(ROUND_LEGEND)
    longest = max(contexts.values())
    for (arm, other), least in loop_crossovers(report["claims"], contexts).items():
        never = f"{arm} is not slower than {other} at {longest} tokens, the longest context"
        click.echo(f"{arm} is slower than {other} from {least} tokens of context on" if least else never)


def verify_table(reports: dict[str, dict[str, Any]]) -> None:
    """Print one line per cache, context and length: median milliseconds, and their ratio to one token's."""
    shown = _table("a forward pass over L tokens", "cache", "context", "L", "ms", "times L = 1")
    for spec, report in reports.items():
        middle = {key: statistics.median(some) for key, some in passes_of(report["rows"]).items()}
        for context in report["config"]["contexts"]:
            single = middle.get((context, 1))
            for n in report["config"]["lengths"]:
                took = middle[context, n]
                times = f"{took / single:.2f}" if single else ""
                shown.add_row(spec, str(context), str(n), f"{1000 * took:.2f}", times)
    print_table(shown)


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == headings[0] else "right", no_wrap=True)
    return table


def _cells(
    arm: dict[str, Any], rows: CountedRows[Any], over: Sequence[float], profiles: Sequence[dict[str, float]]
) -> list[str]:
    name = arm["name"]
    runs = rows.of(name)
    rates = [decode_rate(row) or 0.0 for row in runs]
    low, _, high = statistics.quantiles(rates, n=4, method="inclusive") if len(rates) > 1 else rates * 3
    quotients = rows.ratios(name, NATIVE) if name != NATIVE else []
    rounds = sum(len(row.get("commits", ())) for row in runs)
    syncs = sum(row.get("counters", {}).get("syncs", 0) for row in runs)
    accepted = acceptance_rate(runs)
    parts = [[profile[f"{part}_share"] for profile in profiles] for part in ("draft", "verify", "overhead")]
    same = rows.identical(name, arm["oracle"]) if arm["oracle"] else []
    return [
        name,
        f"{statistics.median(rows.medians(name).values()):.0f}",
        f"{low:.0f}-{high:.0f}",
        *([f"{statistics.median(over):.2f}", f"{min(over):.2f}"] if over else ["", ""]),
        f"{statistics.median(quotients):.2f}" if quotients else "",
        f"{tau(runs):.2f}" if rounds else "",
        f"{accepted:.0%}" if accepted is not None else "",
        f"{syncs / rounds:.2f}" if rounds and syncs else "",
        "/".join(f"{100 * statistics.median(part):.0f}" for part in parts) if profiles else "",
        f"{max(row['memory']['cache_bytes'] for row in runs) / 1024:.0f}",
        f"{sum(same)}/{len(same)}" if same else "",
    ]
