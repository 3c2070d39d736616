"""Small plots as SVG, drawn without a library."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

COLOURS = ("#0b6e4f", "#b23a48", "#3a6ea5", "#e08e45", "#8a6fb0", "#7f8c8d", "#2b2d42", "#c77dff")
WIDTH, HEIGHT, LEFT, TOP = 460, 280, 60, 34

Point = tuple[float, float, float, float]  # x, y, and the interval of y


@dataclass(frozen=True)
class Axes:
    """What is along the axes, and their marks."""

    title: str
    x: str
    y: str
    xs: Sequence[float]
    ys: Sequence[float]


def lines(axes: Axes, series: Mapping[str, Sequence[Point]]) -> str:
    """Return curves with intervals as SVG; points are drawn, and joined from left to right."""
    height = TOP + HEIGHT + 50 + 18 * len(series)
    box = f'viewBox="0 0 {LEFT + WIDTH + 20} {height}" font-family="sans-serif" font-size="12"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    parts.append(f'<text x="{LEFT}" y="{TOP - 12}" font-weight="bold">{escape(axes.title)}</text>')
    for value in axes.ys:
        y = _y(axes, value)
        parts.append(f'<path d="M{LEFT} {y:.1f}h{WIDTH}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in axes.xs:
        x, y = _x(axes, value), TOP + HEIGHT + 16
        parts.append(f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{value:g}</text>')
    caption = f"{escape(axes.x)}; {escape(axes.y)}"
    parts.append(f'<text x="{LEFT}" y="{TOP + HEIGHT + 34}" fill="#555">{caption}</text>')
    for i, (label, points) in enumerate(series.items()):
        parts += _curve(axes, sorted(points), COLOURS[i % len(COLOURS)])
        y = TOP + HEIGHT + 50 + 18 * i
        parts.append(f'<path d="M{LEFT} {y}h24" stroke="{COLOURS[i % len(COLOURS)]}" stroke-width="2"/>')
        parts.append(f'<text x="{LEFT + 32}" y="{y + 4}">{escape(label)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _curve(axes: Axes, points: Sequence[Point], colour: str) -> list[str]:
    placed = [(_x(axes, x), *(_y(axes, v) for v in rest)) for x, *rest in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in placed)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
    for x, y, low, high in placed:
        parts.append(f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="{colour}" opacity=".4"/>')
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
    return parts


def _x(axes: Axes, value: float) -> float:
    return LEFT + WIDTH * _share(value, axes.xs)


def _y(axes: Axes, value: float) -> float:
    return TOP + HEIGHT * (1 - _share(value, axes.ys))


def _share(value: float, marks: Sequence[float]) -> float:
    low, high = min(marks), max(marks)
    return (value - low) / (high - low) if high > low else 0.5


def recall_plot(report: Mapping[str, Any]) -> str:
    """Return recall over length, all depths together, one curve an arm."""
    from engine.evals.stats import exact_interval

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
