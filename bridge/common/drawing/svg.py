"""Draws plots as inline SVG, without scripts and styles; colours come from the page's classes."""

from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup

from bridge.common.drawing.axis import Axis, axis, written
from bridge.common.drawing.markup import join, tag
from bridge.common.drawing.plot import Plot, Point, Series
from bridge.common.drawing.text import cut

WIDTH = 480.0
COLORS = 8

# Height of a file's title, and of a line of its legend.
_HEADING, _KEY = 24.0, 18.0
_STYLE = (
    "text{font:12px sans-serif;fill:#555}.title{font-weight:bold}.grid{stroke:#ddd}"
    ".line{fill:none;stroke:currentColor;stroke-width:1.6}.span{stroke:currentColor;stroke-width:2;opacity:.45}"
    ".mark{fill:currentColor}.limit{color:#555}.limit .line{stroke-dasharray:5 4}"
    ".c0{color:#0b63c5}.c1{color:#c2410c}.c2{color:#0f766e}.c3{color:#8b3fbf}"
    ".c4{color:#a16207}.c5{color:#be185d}.c6{color:#4d7c0f}.c7{color:#475569}"
)
_HEIGHT, _TOP, _RIGHT, _BOTTOM, _LEFT = 300.0, 12.0, 14.0, 44.0, 66.0
_LETTER = 6.4
# Category names longer than the first limit are written above their lines, and cut at the second one.
_ON_THE_LEFT, _ABOVE = 14, 64
_MARK, _APART = 4.0, 5.0


def figures(plots: Iterable[Plot]) -> list[Markup]:
    """Return plots in which series of the same name have the same colour and mark."""
    drawings = list(plots)
    looks = _looks(drawings)
    return [figure(plot, looks) for plot in drawings]


def _looks(plots: Sequence[Plot]) -> dict[str, int]:
    names = dict.fromkeys(series.name for plot in plots for series in plot.series if series.style != "limit")
    return {name: index for index, name in enumerate(names)}


def figure(plot: Plot, looks: Mapping[str, int]) -> Markup:
    """Return a plot with title, legend and note; empty if no point can be drawn.

    ``looks`` gives each series' colour and mark.
    """
    series = _numbered(plot, looks)
    if not any(line.style != "limit" for _, line in series):
        return Markup()
    height, drawing = _dots(plot, series) if plot.categories else _lines(plot, series)
    about = tag("title", f"{plot.title}: {plot.value} by {plot.at}")
    body = tag("svg", about, drawing, view_box=f"0 0 {WIDTH:g} {height:g}", role="img")
    legend = tag("ul", *(_key(i, line) for i, line in series), class_="legend") if len(series) > 1 else None
    note = tag("p", plot.note, class_="note") if plot.note else None
    caption = tag("figcaption", plot.title)
    return tag("figure", caption, legend, body, note)


def svg_file(plots: Sequence[Plot]) -> str:
    """Return plots over numbers side by side as an SVG file with one legend: equal names have equal looks."""
    looks = _looks(plots)
    panels = [(plot, series) for plot in plots if (series := _numbered(plot, looks))]
    lines = {line.name: (index, line) for _, series in panels for index, line in series}
    width, height = WIDTH * max(1, len(panels)), _HEADING + _HEIGHT + _KEY * len(lines)
    parts = [tag("style", _STYLE), tag("rect", width=width, height=height, fill="white")]
    for i, (plot, series) in enumerate(panels):
        title = tag("text", plot.title, x=_LEFT, y=16, class_="title")
        drawing = tag("g", _lines(plot, series)[1], transform=f"translate(0 {_HEADING:g})")
        parts.append(tag("g", title, drawing, transform=f"translate({i * WIDTH:g} 0)"))
    for i, (name, (index, line)) in enumerate(lines.items()):
        y = _HEADING + _HEIGHT + _KEY * i
        key = tag("g", _sample(index, line), tag("text", name, x=30, y=11))
        parts.append(tag("g", key, transform=f"translate({_LEFT:g} {y:g})"))
    outer = tag("svg", *parts, xmlns="http://www.w3.org/2000/svg", view_box=f"0 0 {width:g} {height:g}")
    return f"{outer}\n"


def _numbered(plot: Plot, looks: Mapping[str, int]) -> list[tuple[int, Series]]:
    return [(looks.get(line.name, 0), line) for line in plot.drawable()]


def mark(shape: int, x: float, y: float, title: str = "", size: float = _MARK) -> Markup:
    """Return one of five marks, so that series can be distinguished without colours."""
    about = tag("title", title) if title else None
    if shape % 5 == 0:
        return tag("g", about, tag("circle", cx=x, cy=y, r=size), class_="mark")
    corners = {
        1: ((-1, -1), (1, -1), (1, 1), (-1, 1)),
        2: ((0, -1.3), (1.2, 0.9), (-1.2, 0.9)),
        3: ((0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0)),
        4: ((-1.2, -0.9), (1.2, -0.9), (0, 1.3)),
    }[shape % 5]
    way = " ".join(
        f"{round(x + dx * size * 0.9, 1):g},{round(y + dy * size * 0.9, 1):g}" for dx, dy in corners
    )
    return tag("g", about, tag("path", d=f"M{way}Z"), class_="mark")


def _values(series: Sequence[tuple[int, Series]]) -> list[float]:
    return [value for _, line in series for point in line.points for value in point.span]


def _lines(plot: Plot, series: Sequence[tuple[int, Series]]) -> tuple[float, Markup]:
    places = [point.at for _, line in series for point in line.points]
    across = axis(places, _LEFT, WIDTH - _RIGHT)
    up = axis(_values(series), _HEIGHT - _BOTTOM, _TOP, log=plot.log, from_zero=True)
    grid = [
        *(_tick(up.position(tick), written(tick), horizontal=True) for tick in up.ticks()),
        *(_tick(across.position(tick), written(tick)) for tick in across.ticks()),
        _word(plot.at, (_LEFT + WIDTH - _RIGHT) / 2, _HEIGHT - 6, "middle"),
        _word(plot.value, 12, (_TOP + _HEIGHT - _BOTTOM) / 2, "middle", turned=True),
    ]
    spread = [line for _, line in series if any(p.low is not None and p.low != p.high for p in line.points)]
    drawn = [_draw(i, line, across, up, aside=_aside(line, spread)) for i, line in series]
    return _HEIGHT, join(*grid, *drawn)


def _aside(series: Series, spread: Sequence[Series]) -> float:
    """Return by how many pixels a series with spans is shifted, so that equal ones do not hide each other."""
    return _APART * (spread.index(series) - (len(spread) - 1) / 2) if series in spread else 0.0


def _draw(index: int, series: Series, across: Axis, up: Axis, *, aside: float = 0.0) -> Markup:
    at = [(round(across.position(p.at) + aside, 1), up.position(p.value), p) for p in series.points]
    way = "M" + " ".join(f"{x:g},{y:g}" for x, y, _ in at)
    line = tag("path", d=way, class_="line") if series.style != "marks" and len(at) > 1 else None
    if series.style == "limit":
        return tag("g", line, class_="limit")
    spans = [
        tag("line", x1=x, x2=x, y1=up.position(p.low), y2=up.position(p.high), class_="span")
        for x, _, p in at if p.low is not None and p.high is not None and p.low != p.high
    ]  # fmt: skip
    marks = [mark(index, x, y, p.label) for x, y, p in at]
    return tag("g", line, *spans, *marks, class_=f"c{index % COLORS}")


def _dots(plot: Plot, series: Sequence[tuple[int, Series]]) -> tuple[float, Markup]:
    """Return one line per category, with the series slightly apart. Long names are above the marks."""
    longest = max(map(len, plot.categories))
    on_the_left = longest <= _ON_THE_LEFT
    labels = [cut(name, _ON_THE_LEFT if on_the_left else _ABOVE) for name in plot.categories]
    margin = longest * _LETTER + 14 if on_the_left else 8.0
    head = 0.0 if on_the_left else 15.0
    rows = [i for i, line in series if line.style != "limit"]
    tall = max(20.0, 9.0 * len(rows) + 8) + head
    bottom = _TOP + tall * len(labels)
    across = axis(_values(series), margin, WIDTH - _RIGHT, log=plot.log, from_zero=True)
    parts = [_tick(across.position(tick), written(tick), bottom=bottom) for tick in across.ticks()]
    parts.append(_word(plot.value, (margin + WIDTH - _RIGHT) / 2, bottom + _BOTTOM - 6, "middle"))
    words = []
    for row, name in enumerate(labels):
        y = _TOP + tall * row
        if row:
            parts.append(tag("line", x1=margin, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="grid"))
        at = (margin - 8, y + tall / 2 + 4, "end") if on_the_left else (margin, y + 13, "start")
        words.append(_word(name, *at))
    for i, line in series:
        if line.style == "limit":
            x = across.position(line.points[0].value)
            parts.append(tag("g", tag("line", x1=x, x2=x, y1=_TOP, y2=bottom, class_="line"), class_="limit"))
            continue
        offset = _TOP + head + (tall - head) * (rows.index(i) + 1) / (len(rows) + 1)
        dots = (_dot(i, point, across, tall * point.at + offset) for point in line.points)
        parts.append(tag("g", *dots, class_=f"c{i % COLORS}"))
    return bottom + _BOTTOM, join(*parts, *words)


def _dot(shape: int, point: Point, across: Axis, y: float) -> Markup:
    y = round(y, 1)
    span = None
    if point.low is not None and point.high is not None and point.low != point.high:
        span = tag(
            "line", x1=across.position(point.low), x2=across.position(point.high), y1=y, y2=y, class_="span"
        )
    return join(span, mark(shape, across.position(point.value), y, point.label))


def _tick(at: float, label: str, *, horizontal: bool = False, bottom: float = _HEIGHT - _BOTTOM) -> Markup:
    if horizontal:
        line = tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=at, y2=at, class_="grid")
        return join(line, _word(label, _LEFT - 6, at + 4, "end"))
    line = tag("line", x1=at, x2=at, y1=_TOP, y2=bottom, class_="grid")
    return join(line, _word(label, at, bottom + 16, "middle"))


def _word(text: str, x: float, y: float, anchor: str, *, turned: bool = False) -> Markup:
    way = f"rotate(-90 {x:g} {y:g})" if turned else None
    return tag("text", text, x=x, y=y, text_anchor=anchor, transform=way)


def _sample(index: int, series: Series) -> Markup:
    line = tag("line", x1=1, x2=21, y1=7, y2=7, class_="line") if series.style != "marks" else None
    if series.style == "limit":
        return tag("g", line, class_="limit")
    return tag("g", line, mark(index, 11, 7), class_=f"c{index % COLORS}")


def _key(index: int, series: Series) -> Markup:
    sample = _sample(index, series)
    return tag("li", tag("svg", sample, view_box="0 0 22 14", class_="key", aria_hidden="true"), series.name)
