"""Shows benchmarks of decoding on a terminal: the report's tables, and conclusions in words."""

from collections.abc import Iterator, Sequence
from typing import Any

import click

from bridge.reports.claims.decoding import acceptance_rate, loop_crossovers
from bridge.reports.claims.why_no_speed import why_no_speed
from bridge.reports.counted import CountedRows
from engine.cli.reporting import show_tables


def show_decoding(report: dict[str, Any]) -> None:
    """Print the tables of a report about decoding, and its greatest speed-up or why it claims none."""
    show_tables(report)
    for sentence in (
        *_headline(report["claims"]), *why_no_speed(report), *_scales(report), *_crossovers(report),
    ):  # fmt: skip
        click.echo(sentence)


def _headline(claims: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the greatest claimed speed-up as a sentence."""
    speedups = [c for c in claims if c["name"] == "plain_speedup" and not c.get("where", {}).get("workload")]
    if speedups:
        best = max(speedups, key=lambda claim: float(claim["value"]))
        low, high = best["interval"]
        sentence = f"speed-up of {best['arm']}: {best['value']:.2f} over the fastest loop without drafts"
        yield f"{sentence} ({low:.2f} to {high:.2f} by prompt)"


def _scales(report: dict[str, Any]) -> Iterator[str]:
    """Yield the factor of the drafter's embeddings; with several, the share of drafts accepted with each."""
    scales = {
        arm["name"]: arm["options"]["embed_scale"]
        for arm in report["arms"]
        if "embed_scale" in arm["options"]
    }
    if len({*scales.values()}) == 1:
        yield f"the drafter reads embeddings times {next(iter(scales.values())):g}"
        return
    rows = CountedRows(report["rows"])
    for name, scale in scales.items():
        yield f"{name}: embeddings times {scale:g}, {acceptance_rate(rows.of(name)) or 0:.0%} of drafts accepted"


def _crossovers(report: dict[str, Any]) -> Iterator[str]:
    """Yield from which context on one graph is slower than another loop."""
    by_length = sorted(report["prompts"], key=lambda prompt: prompt["n_tokens"])
    contexts: dict[str, int] = {prompt["workload"]: prompt["n_tokens"] for prompt in by_length}
    longest = max(contexts.values())
    for (arm, other), least in loop_crossovers(report["claims"], contexts).items():
        never = f"{arm} is not slower than {other} at {longest} tokens, the longest context"
        yield f"{arm} is slower than {other} from {least} tokens of context on" if least else never
