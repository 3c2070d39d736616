"""Writes the table of speed over context in docs/decoding.md, and docs/context.svg, from their report: `make docs`.

benchmarks/context.py says how the report is measured.
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

from bridge.common.drawing.plot import Plot, Point, Series
from bridge.common.drawing.svg import svg_file

DOCS = Path(__file__).parent
BEGIN, END = "<!-- context: begin -->\n", "<!-- context: end -->"
HEAD = (
    "| context | raw, ms a token | gain of drafts (tokens a round) | `e8v@4.25` (over raw) | gain of drafts |\n"
    + "|---" * 5
    + "|\n"
)


def main() -> None:
    report = json.loads((DOCS / "results" / "context-curve.json").read_text(encoding="utf-8"))
    page = DOCS / "decoding.md"
    text = page.read_text(encoding="utf-8")
    rows = HEAD + "".join(rows_of(report))
    page.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: BEGIN + rows + END, text, flags=re.DOTALL), "utf-8")
    (DOCS / "context.svg").write_text(picture(report), "utf-8")


def rows_of(report: dict) -> list[str]:
    """Return a row for each context."""
    curves, figures = report["curves"], report["figures"]
    base = next(iter(curves))
    rows = []
    for context in curves[base]:
        cells = [context]
        for cache in curves:
            plain, gain = (figures[f"{cache} {context} {name}"] for name in ("plain_ms", "gain"))
            over = figures.get(f"{cache} {context} over_{base}")
            a_round = statistics.median(curves[cache][context]["tokens_a_round"])
            cells.append(f"{plain:.0f}" + (f" ({over:.2f})" if over else ""))
            cells.append(f"{gain:.2f} ({a_round:.2f})")
        rows.append(f"| {' | '.join(cells)} |\n")
    return rows


def picture(report: dict) -> str:
    """Return the time for a token, plain and with drafts, over the context, as SVG."""
    figures, series = report["figures"], []
    for cache, curve in report["curves"].items():
        at = {int(context): f"{cache} {context}" for context in curve}
        plain = {context: figures[f"{name} plain_ms"] for context, name in at.items()}
        drafted = {context: plain[context] / figures[f"{name} gain"] for context, name in at.items()}
        for label, times in (("plain", plain), ("with drafts", drafted)):
            points = tuple(Point(context, ms) for context, ms in times.items())
            series.append(Series(f"{cache}, {label}", points, "line"))
    plot = Plot(f"Time for a token: {report['model']}", "tokens of context", "ms", tuple(series))
    return svg_file([plot])


if __name__ == "__main__":
    main()
