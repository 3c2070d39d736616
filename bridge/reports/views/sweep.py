"""The part of a report page about sweeps: cost of verifying L tokens, cache codecs, parity, the server, problems."""

import math
from collections.abc import Iterator
from itertools import chain

from bridge.common.drawing.plot import Plot, Point
from bridge.common.drawing.text import Cell, cut
from bridge.common.drawing.text import number as shown
from bridge.reports.claims.quant import kind_of
from bridge.reports.counted import counted
from bridge.reports.statistics import exact_interval
from bridge.reports.views.loose import Row, grouped, items, lines, mapping, median, number, spread, text
from bridge.reports.views.model import Table
from bridge.reports.views.rows import MAX_COLUMNS

# The means of kv-quant, as quotients of two sums: error, divergence and equal top tokens.
_MEANS = (("sum_squared_error", "sum_squares"), ("sum_kl", "n_positions"), ("same_top", "n_positions"))


def verify_view(report: Row) -> tuple[list[Table], list[Plot]]:
    """Return the milliseconds of a pass over L tokens, by length of the context."""
    times: dict[float, dict[float, list[float]]] = {}
    for row in counted(items(report.get("rows"))):
        length, context, seconds = (number(row.get(name)) for name in ("length", "context", "seconds"))
        if length is not None and context is not None and seconds is not None:
            times.setdefault(context, {}).setdefault(length, []).append(1000 * seconds)
    lengths = sorted({length for by in times.values() for length in by})
    if not lengths:
        return [], []
    across = list(times)[: MAX_COLUMNS // 2]
    middle = {
        context: {length: median(times[context].get(length, ())) for length in lengths} for context in across
    }
    cells = tuple(
        (
            length,
            *chain(*((of[length], _over(of[length] or 0, of.get(1) or 0) or None) for of in middle.values())),
        )
        for length in lengths
    )
    columns = ("tokens", *chain(*((f"ms on {context:g} cached", "times one token") for context in across)))
    caches = ", ".join(dict.fromkeys(text(row.get("cache")) for row in items(report.get("rows"))))
    title = f"Median milliseconds of one forward pass, cache {cut(caches)}"
    series = lines({
        f"{context:g} cached": [spread(length, ms, f"{length:g} tokens", " ms") for length, ms in by.items()]
        for context, by in times.items()
    })  # fmt: skip
    note = "The median; the line spans all passes."
    plot = Plot("What verifying costs", "tokens in one pass", "milliseconds", series, note=note)
    return [Table(title, columns, cells)], [plot]


def kv_quant_view(report: Row) -> tuple[list[Table], list[Plot]]:
    """Return each cache's figures over all prompts, against its stored bits. Plots connect caches of the same kind."""
    cells: list[tuple[Cell, ...]] = []
    for (arm,), rows in grouped(items(report.get("rows")), "arm").items():
        nbytes = _sum([mapping(row.get("memory")) for row in rows], "cache_bytes")
        bits = _over(8 * nbytes, _sum(rows, "n_values"))
        nll = _over(_sum(rows, "sum_nll"), _sum(rows, "n_positions"))
        means = [_over(_sum(rows, top), _sum(rows, bottom)) for top, bottom in _MEANS]
        perplexity = math.exp(nll) if nll is not None and nll < 700 else None  # noqa: PLR2004 - a float's range
        cells.append((arm, bits, *means, perplexity))
    if not cells:
        return [], []
    columns = ("arm", "stored bits", "rel-MSE", "KL (nats)", "same top token", "perplexity")
    note = "Bits a value, side information included."
    table = Table("Caches, all prompts together", columns, tuple(cells), note)
    named = (("Distortion of keys and values", "relative squared error", 2), ("Divergence", "KL in nats", 3))
    plots = []
    for title, value, column in named:
        curves: dict[str, list[Point]] = {}
        for cell in cells:
            stored, figure = cell[1], cell[column]
            if isinstance(stored, float) and isinstance(figure, float) and figure > 0:
                label = f"{cell[0]}: {shown(figure)} at {shown(stored)} bits"
                curves.setdefault(kind_of(str(cell[0])), []).append(Point(stored, figure, label=label))
        if curves:
            plots.append(Plot(title, "stored bits a value", value, lines(curves), log=True))
    return [table], plots


def parity_view(report: Row) -> tuple[list[Table], list[Plot]]:
    """Return on how many drafted tokens two implementations agree, by prompt."""
    cells: list[tuple[Cell, ...]] = []
    for (prompt,), rows in grouped(items(report.get("rows")), "prompt").items():
        same = [reference == candidate for row in rows for reference, candidate in _pairs(row)]
        errors = [e for row in rows if (e := number(row.get("max_logit_error"))) is not None]
        cells.append((prompt, len(same), _over(sum(same), len(same)), max(errors, default=None)))
    columns = ("prompt", "tokens", "equal", "largest error of a logit")
    return [Table("Two implementations on the same inputs", columns, tuple(cells))] if cells else [], []


def serve_view(report: Row) -> tuple[list[Table], list[Plot]]:
    """Return how many server answers equal those to a single client without drafts and prefix cache."""
    rows = items(report.get("rows"))
    alone = {
        (row.get("cache"), row.get("form"), row.get("question")): row.get("tokens")
        for row in rows
        if row.get("draft") == "none" and row.get("warm") is False and row.get("clients") == 1
    }
    cells: list[tuple[Cell, ...]] = []
    for (draft, cache), some in grouped(rows, "draft", "cache").items():
        equal = sum(
            row.get("tokens") == alone.get((cache, row.get("form"), row.get("question"))) for row in some
        )
        ties = sum(mapping(row.get("divergence")).get("kind") == "tie" for row in some)
        cells.append((draft, cache, len(some), equal, ties, _sum(some, "n_tokens")))
    columns = ("drafts", "cache", "answers", "equal", "near ties", "tokens")
    title = "Answers that equal a lone client's without drafts and kept prompts"
    return [Table(title, columns, tuple(cells))] if cells else [], []


def solutions_view(report: Row) -> tuple[list[Table], list[Plot]]:
    """Return how many problems each arm solves, with the exact interval of the share."""
    cells: list[tuple[Cell, ...]] = []
    for (arm,), rows in grouped(items(report.get("rows")), "arm").items():
        hits = sum(row.get("passed") is True for row in rows)
        low, high = exact_interval(hits, len(rows))
        cells.append((arm, len(rows), hits, hits / len(rows), f"{low:.3f} to {high:.3f}"))
    columns = ("arm", "problems", "solved", "pass@1", "95 % interval")
    return [Table("Problems whose tests pass", columns, tuple(cells))] if cells else [], []


def _pairs(row: Row) -> Iterator[tuple[object, object]]:
    sides = [row.get(name) for name in ("reference", "candidate")]
    return zip(*(side if isinstance(side, list) else [] for side in sides), strict=False)


def _sum(rows: list[Row], name: str) -> float:
    return sum(number(row.get(name)) or 0.0 for row in rows)


def _over(a: float, b: float) -> float | None:
    return a / b if b else None
