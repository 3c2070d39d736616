"""The part of a report page about ``kakeya.codec-rd``: the error of each code against its stored bits."""

import math
from collections.abc import Callable

from bridge.common.drawing.plot import Plot, Point, Series
from bridge.common.drawing.text import number as shown
from bridge.reports.views.loose import Row, items, lines, number, text
from bridge.reports.views.model import Claim, Table
from bridge.reports.views.rows import MAX_COLUMNS

# A code with more bits is as large as the plain numbers, and would only squeeze the rest of the plot.
_MOST_BITS = 9.0

_ACROSS = "stored bits a value"
_DEFINITION = "mean over vectors of the squared error over the squared length, at these stored bits a value"


def codec(report: Row) -> tuple[list[Table], list[Plot]]:
    """Return tables and plots."""
    return tables(report), plots(report)


def tables(report: Row) -> list[Table]:
    """Return the error of each code on each distribution, in the order of stored bits."""
    rows = _good(report)
    sources = _sources(rows)
    error_by_rate: dict[tuple[float, str], dict[str, float]] = {}
    for row in rows:
        error_by_rate.setdefault((_bits(row), _name(row)), {})[text(row["distribution"])] = row["rel_mse"]
    columns = ("stored bits", "code", *sources, "limit 2^-2R")
    cells = tuple(
        (bits, name, *(errors.get(source) for source in sources), math.exp2(-2 * bits))
        for (bits, name), errors in sorted(error_by_rate.items())
    )
    note = "Bits a value, scales and biases included. The limit is for Gaussian values: no code can beat it."
    return [Table("Relative squared error at the bits that are stored", columns, cells, note)]


def plots(report: Row) -> list[Plot]:
    """Return one plot per distribution; for Gaussian values, also one of the distance from the limit."""
    rows = [row for row in _good(report) if _bits(row) <= _MOST_BITS and row["rel_mse"] > 0]
    plots = []
    for source in _sources(rows):
        mine = [row for row in rows if row["distribution"] == source]
        least = tuple(Point(bits, math.exp2(-2 * bits)) for bits in sorted({_bits(row) for row in mine}))
        series = (*_series(mine, lambda row: row["rel_mse"]), Series("limit 2^-2R", least, "limit"))
        plots.append(Plot(f"Distortion, {source}", _ACROSS, "relative squared error", series, log=True))
    gaussian = [row for row in rows if row["distribution"] == "gaussian"]
    gap = _series(gaussian, lambda row: 10 * math.log10(row["rel_mse"] / math.exp2(-2 * _bits(row))))
    if gap:
        plots.append(Plot("Above the limit, gaussian", _ACROSS, "dB above 2^-2R", gap))
    return plots


def figures(report: Row) -> list[Claim]:
    """Return each row as a figure, because such a report makes no claims."""
    return [
        Claim(
            "rel_mse", row["rel_mse"], _DEFINITION, arm=f"{_name(row)} at {shown(_bits(row))} bits",
            where=text(row["distribution"]), stated=False,
        )
        for row in _good(report)
    ]  # fmt: skip


def _good(report: Row) -> list[Row]:
    """Return the rows that have all values of a plot."""
    wanted = ("stored_bits_per_value", "rel_mse")
    return [
        row for row in items(report.get("rows"))
        if all((number(row.get(name)) or -1) >= 0 for name in wanted) and text(row.get("distribution"))
        and _bits(row) < 64  # noqa: PLR2004 - more than any number here has
    ]  # fmt: skip


def _bits(row: Row) -> float:
    return float(row["stored_bits_per_value"])


def _name(row: Row) -> str:
    """Return a code's name without its rate."""
    name = text(row.get("codec")) or "?"
    if name == "affine":
        return f"affine, groups of {row.get('group')}{', rotated' if row.get('rotated') is True else ''}"
    return {"voronoi": "E8 Voronoi", "raw": "bfloat16"}.get(name, name)


def _family(row: Row) -> str:
    """Return the common name of codes that differ only in their rate."""
    lattice, _, q_range = _name(row).partition(" Q")
    return f"{lattice.upper()}, classic" if q_range else _name(row)


def _sources(rows: list[Row]) -> list[str]:
    """Return the distributions, not more than a table may have columns."""
    return list(dict.fromkeys(text(row["distribution"]) for row in rows))[:MAX_COLUMNS]


def _series(rows: list[Row], take: Callable[[Row], float]) -> tuple[Series, ...]:
    points_by_code: dict[str, list[Point]] = {}
    for row in rows:
        about = f"{_name(row)}: {shown(row['rel_mse'])} at {shown(_bits(row))} bits"
        points_by_code.setdefault(_family(row), []).append(Point(_bits(row), take(row), label=about))
    return lines(points_by_code)
