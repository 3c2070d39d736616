"""Measure the codecs and draw docs/codec-rd.svg.

python docs/build_codec.py
"""

import math
from collections.abc import Callable, Iterable
from pathlib import Path

from bridge.common.drawing.plot import Plot, Point, Series
from bridge.common.drawing.svg import svg_file
from engine.evals.rate_distortion.sources import DISTRIBUTIONS, draw
from engine.evals.rate_distortion.table import RatePlan, table

DOCS = Path(__file__).parent
DIM, VECTORS, SEED = 128, 4096, 0
PLAN = RatePlan(
    ("affine", "classic", "voronoi"), (2, 3, 4, 5, 6, 8), (64, 128), (2, 4, 7, 10, 19, 38, 76, 152), "normal"
)


def _affine(group: int, *, rotated: bool) -> Callable[[dict], bool]:
    return lambda row: (row["codec"], row["group"], row["rotated"]) == ("affine", group, rotated)


def _named(start: str) -> Callable[[dict], bool]:
    return lambda row: row["codec"].startswith(start)


CURVES = {
    "Voronoi E8": _named("voronoi"),
    "affine, group 128": _affine(128, rotated=False),
    "affine, group 128, Hadamard": _affine(128, rotated=True),
    "affine, group 64, Hadamard": _affine(64, rotated=True),
    "published E8 (nominal bits)": _named("e8 "),
    "published D4 (nominal bits)": _named("d4 "),
}
TITLES = {"gaussian": "Gaussian", "t4": "Student-t, 4 degrees", "outliers": "two channels times 20"}
MOST_DECIBELS = 14


def main() -> None:
    """Measure and draw."""
    rows = table({name: draw(name, VECTORS, DIM, SEED) for name in DISTRIBUTIONS}, PLAN)
    (DOCS / "codec-rd.svg").write_text(picture(rows), encoding="utf-8")


def picture(rows: list[dict]) -> str:
    """Return the curves as SVG: decibels above the limit over bits, one panel for each kind of data."""
    plots = []
    for name in DISTRIBUTIONS:
        here = [row for row in rows if row["distribution"] == name]
        series = (Series(label, curve(filter(belongs, here)), "line") for label, belongs in CURVES.items())
        plots.append(Plot(TITLES[name], "stored bits a value", "decibels above 2^-2R", tuple(series)))
    return svg_file(plots)


def curve(rows: Iterable[dict]) -> tuple[Point, ...]:
    """Return rate and decibels above the limit of each row that the plot has room for."""
    points = (
        Point(row["stored_bits_per_value"], 10 * math.log10(row["rel_mse"] / row["limit"])) for row in rows
    )
    return tuple(
        sorted((point for point in points if point.value <= MOST_DECIBELS), key=lambda point: point.at)
    )


if __name__ == "__main__":
    main()
