"""Small plots as SVG, drawn without a library."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from bridge.reports.claims.quant import by_arm, kind_of
from bridge.reports.statistics import exact_interval

COLOURS = ("#0b6e4f", "#b23a48", "#3a6ea5", "#e08e45", "#8a6fb0", "#7f8c8d", "#2b2d42", "#c77dff")
WIDTH, HEIGHT, LEFT, TOP, GAP = 460, 280, 60, 34, 24

Point = tuple[float, ...]  # x and y, and the interval of y where there is one


@dataclass(frozen=True)
class Axes:
    """What is along the axes, and their marks, which end them."""

    title: str
    x: str
    y: str
    xs: Sequence[float]
    ys: Sequence[float]


Panel = tuple[Axes, Mapping[str, Sequence[Point]]]


def lines(axes: Axes, series: Mapping[str, Sequence[Point]]) -> str:
    """Return curves with intervals as SVG; points are drawn, and joined from left to right."""
    return panels([(axes, series)])


def panels(plots: Sequence[Panel], width: float = WIDTH) -> str:
    """Return several such plots side by side, each so wide, with one legend below: equal names, equal colours."""
    names = dict.fromkeys(name for _, series in plots for name in series)
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    across, height = LEFT + len(plots) * (width + GAP), TOP + HEIGHT + 50 + 18 * len(colours)
    box = f'viewBox="0 0 {across} {height}" font-family="sans-serif" font-size="12"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for i, (axes, series) in enumerate(plots):
        offset = LEFT + i * (width + GAP)
        parts += [f'<g transform="translate({offset} {TOP})">', *_grid(axes, width)]
        for name, points in series.items():
            parts += _curve(axes, width, sorted(points), colours[name])
        parts.append("</g>")
    for i, (name, colour) in enumerate(colours.items()):
        y = TOP + HEIGHT + 50 + 18 * i
        parts.append(f'<path d="M{LEFT} {y}h24" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{LEFT + 32}" y="{y + 4}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _grid(axes: Axes, width: float) -> list[str]:
    parts = [f'<text y="-12" font-weight="bold">{escape(axes.title)}</text>']
    for value in axes.ys:
        y = _y(axes, value)
        parts.append(f'<path d="M0 {y:.1f}h{width}" stroke="#ddd"/>')
        parts.append(f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in axes.xs:
        x = width * _share(value, axes.xs)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT + 16}" text-anchor="middle">{value:g}</text>')
    caption = f"{escape(axes.x)}; {escape(axes.y)}"
    return [*parts, f'<text y="{HEIGHT + 34}" fill="#555">{caption}</text>']


def _curve(axes: Axes, width: float, points: Sequence[Point], colour: str) -> list[str]:
    placed = [(width * _share(x, axes.xs), *(_y(axes, v) for v in rest)) for x, *rest in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, *_ in placed)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
    for x, y, *interval in placed:
        if interval:
            low, high = interval
            parts.append(f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="{colour}" opacity=".4"/>')
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
    return parts


def _y(axes: Axes, value: float) -> float:
    return HEIGHT * (1 - _share(value, axes.ys))


def _share(value: float, marks: Sequence[float]) -> float:
    low, high = min(marks), max(marks)
    return (value - low) / (high - low) if high > low else 0.5


def recall_plot(report: Mapping[str, Any]) -> str:
    """Return recall over length, all depths together, one curve an arm."""
    about = {prompt["id"]: prompt for prompt in report["prompts"]}
    lengths = sorted({prompt["length"] for prompt in about.values()})
    series: dict[str, list[Point]] = {}
    for arm in report["arms"]:
        for length in lengths:
            hits = [
                about[row["prompt"]]["expected"] in row["text"]
                for row in report["rows"]
                if row["arm"] == arm["name"] and about[row["prompt"]]["length"] == length
            ]
            share = sum(hits) / len(hits)
            series.setdefault(arm["name"], []).append((length, share, *exact_interval(sum(hits), len(hits))))
    axes = Axes(
        "Needles found", "tokens of the prompt", "share, with its 95 % interval", lengths, (0, 0.5, 1)
    )
    return lines(axes, series)


def quant_plot(report: Mapping[str, Any]) -> str:
    """Return KL divergence over stored bits, a curve for each kind of cache."""
    by_name = by_arm(report)
    series: dict[str, list[tuple[float, float]]] = {}
    for arm in report["arms"]:
        figures = by_name[arm["name"]]
        if arm["role"] == "candidate" and figures["kl"] > 0:
            point = figures["stored_bits_per_value"], math.log10(figures["kl"])
            series.setdefault(kind_of(arm["cache"]), []).append(point)
    points = [point for curve in series.values() for point in curve] or [(2.0, 0.0)]
    xs = range(math.floor(min(x for x, _ in points)), math.ceil(max(x for x, _ in points)) + 1)
    ys = range(math.floor(min(y for _, y in points)), math.ceil(max(y for _, y in points)) + 1)
    title = "What a cache does to predictions"
    return lines(Axes(title, "stored bits a value", "log10 of the KL divergence in nats", xs, ys), series)
