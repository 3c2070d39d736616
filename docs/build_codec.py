"""Measure the codecs and draw docs/codec-rd.svg; write the table into docs/codec.md.

python docs/build_codec.py
"""

import math
import re
from collections.abc import Callable
from pathlib import Path

from engine.codec.rd import Plan, table
from engine.codec.sources import DISTRIBUTIONS, draw

DOCS = Path(__file__).parent
DIM, VECTORS, SEED = 128, 4096, 0
PLAN = Plan(
    ("affine", "classic", "voronoi"), (2, 3, 4, 5, 6, 8), (64, 128), (2, 4, 7, 10, 19, 38, 76, 152), "normal"
)


def _affine(group: int, *, rotated: bool) -> Callable[[dict], bool]:
    return lambda row: (row["codec"], row["group"], row["rotated"]) == ("affine", group, rotated)


def _named(start: str) -> Callable[[dict], bool]:
    return lambda row: row["codec"].startswith(start)


CURVES = {
    "Voronoi E8": ("#0b6e4f", _named("voronoi")),
    "affine, group 128": ("#b23a48", _affine(128, rotated=False)),
    "affine, group 128, Hadamard": ("#e08e45", _affine(128, rotated=True)),
    "affine, group 64, Hadamard": ("#8a6fb0", _affine(64, rotated=True)),
    "published E8 (nominal bits)": ("#3a6ea5", _named("e8 ")),
    "published D4 (nominal bits)": ("#7f8c8d", _named("d4 ")),
}
TITLES = {"gaussian": "Gaussian", "t4": "Student-t, 4 degrees", "outliers": "two channels times 20"}
WIDTH, HEIGHT, LEFT, TOP, GAP = 300, 300, 46, 34, 24
RATES, DECIBELS = (2, 9), (0, 14)


def main() -> None:
    """Measure, draw, write."""
    rows = table({name: draw(name, VECTORS, DIM, SEED) for name in DISTRIBUTIONS}, PLAN)
    (DOCS / "codec-rd.svg").write_text(picture(rows), encoding="utf-8")
    page = DOCS / "codec.md"
    marks = r"(<!-- table -->\n).*?(<!-- end of table -->)"
    text = re.sub(
        marks, lambda m: m[1] + markdown(rows) + m[2], page.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    page.write_text(text, encoding="utf-8")


def markdown(rows: list[dict]) -> str:
    """Return the Voronoi rows beside the best affine code of the same stored bits."""
    lines = [
        "| bits/value | limit | data | Voronoi | affine | affine, Hadamard |",
        "|---|---|---|---|---|---|",
    ]
    for row in (row for row in rows if row["codec"] == "voronoi"):
        same = [
            r["rel_mse"]
            for rotated in (False, True)
            for r in rows
            if r["codec"] == "affine" and r["rotated"] is rotated
            if (r["stored_bits_per_value"], r["distribution"])
            == (row["stored_bits_per_value"], row["distribution"])
        ]
        cells = [f"{row['stored_bits_per_value']:.2f}", f"{row['limit']:.3g}", TITLES[row["distribution"]]]
        lines.append(
            "| " + " | ".join([*cells, f"**{row['rel_mse']:.3g}**", *(f"{x:.3g}" for x in same)]) + " |"
        )
    return "\n".join(lines) + "\n"


def picture(rows: list[dict]) -> str:
    """Return the curves as SVG: decibels above the limit over bits, one panel for each kind of data."""
    width = LEFT + len(DISTRIBUTIONS) * (WIDTH + GAP)
    height = TOP + HEIGHT + 50 + 18 * len(CURVES)
    box = f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for i, name in enumerate(DISTRIBUTIONS):
        parts += _panel(
            [row for row in rows if row["distribution"] == name], LEFT + i * (WIDTH + GAP), TITLES[name]
        )
    for i, (label, (colour, _)) in enumerate(CURVES.items()):
        y = TOP + HEIGHT + 50 + 18 * i
        parts.append(f'<path d="M{LEFT} {y}h24" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{LEFT + 32}" y="{y + 4}">{label}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(rows: list[dict], left: float, title: str) -> list[str]:
    parts = [f'<text x="{left}" y="{TOP - 12}" font-weight="bold">{title}</text>']
    for decibels in range(DECIBELS[0], DECIBELS[1] + 1, 2):
        y = _y(decibels)
        parts.append(f'<path d="M{left} {y:.1f}h{WIDTH}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{decibels}</text>')
    for rate in range(RATES[0], RATES[1] + 1):
        x = _x(rate, left)
        parts.append(f'<text x="{x:.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{rate}</text>')
    caption = "stored bits a value; decibels above 2^-2R"
    parts.append(f'<text x="{left}" y="{TOP + HEIGHT + 34}" fill="#555">{caption}</text>')
    for colour, belongs in CURVES.values():
        found = sorted(
            (r["stored_bits_per_value"], 10 * math.log10(r["rel_mse"] / r["limit"]))
            for r in rows
            if belongs(r)
        )
        points = [(_x(rate, left), _y(decibels)) for rate, decibels in found if decibels <= DECIBELS[1]]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    return parts


def _x(rate: float, left: float) -> float:
    return left + WIDTH * (rate - RATES[0]) / (RATES[1] - RATES[0])


def _y(decibels: float) -> float:
    return TOP + HEIGHT * (DECIBELS[1] - decibels) / (DECIBELS[1] - DECIBELS[0])


if __name__ == "__main__":
    main()
