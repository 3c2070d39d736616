"""Draws a plot as lines of text. GitHub's Markdown shows no inline SVG."""

from collections.abc import Iterator, Sequence

from bridge.common.drawing.axis import Axis, axis, written
from bridge.common.drawing.plot import Plot, Series
from bridge.common.drawing.text import printable

_WIDTH, _HEIGHT = 64, 14
# One mark per series; further series are left out, with a note. The last mark is for limits.
_MARKS = "ox+*#%@&$=ab"
_LIMIT = "."
_CATEGORIES = 30
_LABEL = 24

Marked = tuple[str, Series]


def text_plot(plot: Plot) -> list[str]:
    """Return a plot as lines; empty if nothing can be drawn."""
    shown = plot.drawable()
    drawn = _marked(shown)
    if not drawn:
        return []
    body = _by_category(plot, drawn) if plot.categories else _scatter(plot, drawn)
    keys = [f"{mark} {_cut(line.name)}" for mark, line in drawn if line.name]
    rest = [f"and {len(shown) - len(drawn)} more"] if len(shown) > len(drawn) else []
    return [*body, "   ".join((*keys, *rest))]


def _marked(series: Sequence[Series]) -> list[Marked]:
    marks = iter(_MARKS)
    pairs = [(_LIMIT if line.style == "limit" else next(marks, ""), line) for line in series]
    marked = [(mark, line) for mark, line in pairs if mark]
    # Draw limits first, behind the rest.
    return sorted(marked, key=lambda entry: entry[0] != _LIMIT)


def _scatter(plot: Plot, drawn: Sequence[Marked]) -> Iterator[str]:
    points = [point for _, line in drawn for point in line.points]
    across = axis([point.at for point in points], 0, _WIDTH - 1)
    up = axis([point.value for point in points], _HEIGHT - 1, 0, log=plot.log)
    rows = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    for mark, line in drawn:
        for point in line.points:
            rows[round(up.position(point.value))][round(across.position(point.at))] = mark
    ticks = {round(up.position(tick)): written(tick) for tick in up.ticks()}
    room = max(map(len, ticks.values()), default=0)
    yield _cut(plot.value, _WIDTH)
    for i, row in enumerate(rows):
        yield f"{ticks.get(i, ''):>{room}} |{''.join(row).rstrip()}"
    yield f"{'':>{room}} +{'-' * _WIDTH}"
    yield f"{'':>{room}}  {_scale(across)}"
    yield f"{'':>{room}}  {_cut(plot.at, _WIDTH)}"


def _by_category(plot: Plot, drawn: Sequence[Marked]) -> Iterator[str]:
    names = [_cut(name) for name in plot.categories[:_CATEGORIES]]
    values = [point.value for _, line in drawn for point in line.points]
    across = axis(values, 0, _WIDTH - 1, log=plot.log, from_zero=not plot.log)
    rows = [[" "] * _WIDTH for _ in names]
    for mark, line in drawn:
        for point in line.points:
            if 0 <= point.at < len(rows):
                rows[int(point.at)][round(across.position(point.value))] = mark
    room = max(map(len, names))
    for name, row in zip(names, rows, strict=True):
        yield f"{name:>{room}} |{''.join(row).rstrip()}"
    if len(plot.categories) > len(names):
        yield f"{'':>{room}}  and {len(plot.categories) - len(names)} more"
    yield f"{'':>{room}} +{'-' * _WIDTH}"
    yield f"{'':>{room}}  {_scale(across)}"
    yield f"{'':>{room}}  {_cut(plot.value, _WIDTH)}"


def _scale(across: Axis) -> str:
    """Return the line of labels below an axis, without labels that would touch."""
    line = ""
    for tick in across.ticks():
        at, text = round(across.position(tick)), written(tick)
        if at >= len(line) + bool(line) and at + len(text) <= _WIDTH:
            line = line.ljust(at) + text
    return line


def _cut(text: str, most: int = _LABEL) -> str:
    shown = printable(text)
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."
