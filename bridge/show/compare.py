"""Compares runs: their figures side by side, and everything that differs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from bridge.common.drawing.plot import Plot, Point, Series
from bridge.common.drawing.text import Cell, cut
from bridge.common.drawing.text import number as shown
from bridge.errors import ManifestError
from bridge.reports.reading import parse_report
from bridge.reports.views.loose import Row, items, plain, text
from bridge.reports.views.model import Claim, Table
from bridge.reports.views.rows import flat
from bridge.show.model import RunView
from bridge.show.report_view import figures
from bridge.show.source import Source, own_kinds, reports_of

_MOST_DRAWN = 20
# Limit of compared figures. An honest report has a few hundred.
_MOST_FIGURES = 5_000
# Facts that always differ between runs and do not affect their figures.
_UNLIKE_BY_NATURE = ("branch", "request commit", "started", "finished", "seconds", "why")

Key = tuple[str, str]


def figures_of(source: Source) -> dict[Key, Claim]:
    """Return the figures of all readable reports of an answer, by name and subject, up to a limit."""
    claims: dict[Key, Claim] = {}
    own = own_kinds(source)
    for report in _reports(source):
        for claim in figures(report, own):
            claims.setdefault((claim.name, claim.about), claim)
        if len(claims) >= _MOST_FIGURES:
            break
    return claims


def _reports(source: Source) -> Iterator[Row]:
    for path in reports_of(source.result):
        with suppress(ManifestError):
            yield parse_report(source.files.get(path, b""))


def comparison(
    sources: Sequence[Source], runs: Sequence[RunView]
) -> tuple[tuple[Table, ...], tuple[Plot, ...]]:
    """Return the tables and plots of a comparison. The first run is the baseline."""
    labels = labels_of(sources)
    figures = [figures_of(source) for source in sources]
    keys = list(dict.fromkeys(key for claims in figures for key in claims))
    order = {name: index for index, name in enumerate(dict.fromkeys(name for name, _ in keys))}
    keys.sort(key=lambda key: order[key[0]])
    tables = [_overview(runs, labels), _figures(figures, keys, labels), _unlike(sources, runs, labels)]
    return tuple(table for table in tables if table.rows), tuple(_quotients(figures, keys, labels))


def labels_of(sources: Sequence[Source]) -> list[str]:
    """Return the short names of the runs in a comparison: their points of a sweep, or else their numbers."""
    points = [source.point for source in sources]
    is_sweep = all(points) and len({*points}) == len(points)
    return points if is_sweep else [f"run {index + 1}" for index in range(len(sources))]


def _overview(runs: Sequence[RunView], labels: Sequence[str]) -> Table:
    rows = tuple(
        (labels[i], run.preset, run.conclusion.word, run.conclusion.judged or None, run.evidence.status, run.name)
        for i, run in enumerate(runs)
    )  # fmt: skip
    return Table("Runs", ("", "preset", "state", "gate", "evidence", "branch"), rows)


def _figures(figures: Sequence[Mapping[Key, Claim]], keys: Sequence[Key], labels: Sequence[str]) -> Table:
    cells: list[tuple[Cell, ...]] = []
    for name, about in keys:
        values = [claims[name, about].value if (name, about) in claims else None for claims in figures]
        changes = [_change(values[0], value) for value in values[1:]]
        cells.append((name, about, *values, *changes))
    columns = ["figure", "of", *labels]
    columns += [f"{name} to {labels[0]}" for name in labels[1:]]
    return Table("Figures side by side", tuple(columns), tuple(cells), folded=len(cells) > 2 * _MOST_DRAWN)


def _change(first: float | None, other: float | None) -> Cell:
    if first is None or other is None:
        return None
    if first == other:
        return "equal"
    return f"{shown(other / first)}x" if first else None


def _unlike(sources: Sequence[Source], runs: Sequence[RunView], labels: Sequence[str]) -> Table:
    facts: list[dict[str, Cell]] = []
    for source, run in zip(sources, runs, strict=True):
        parts = {"asked": run.request, "outcome": run.outcome, "host": run.host, "version": run.versions}
        named = {f"{part}: {name}": value for part, pairs in parts.items() for name, value in pairs}
        facts.append(named | _measured(source))
    names = list(dict.fromkeys(name for mine in facts for name in mine))
    rows = tuple(
        (name, *(mine.get(name) for mine in facts)) for name in names
        if len({mine.get(name) for mine in facts}) > 1 and name.partition(": ")[2] not in _UNLIKE_BY_NATURE
    )  # fmt: skip
    return Table("What else differs", ("", *labels), rows)


def _measured(source: Source) -> dict[str, Cell]:
    facts: dict[str, Cell] = {}
    for report in _reports(source):
        kind = cut(text(report.get("kind")), 40).removeprefix("kakeya.")
        facts |= {f"{kind}: {name}": value for name, value in flat(report.get("config")).items()}
        for model in items(report.get("models")):
            role = cut(text(model.get("role")), 40)
            facts |= {f"{kind}: {role} {name}": plain(model.get(name)) for name in ("id", "weights", "dtype")}
    return facts


def _quotients(
    figures: Sequence[Mapping[Key, Claim]], keys: Sequence[Key], labels: Sequence[str]
) -> list[Plot]:
    """Return one line per figure, the largest differences first: each run's value divided by the first run's."""
    quotients: dict[Key, dict[int, float]] = {}
    for key in keys:
        first = figures[0][key].value if key in figures[0] else None
        for i, other in enumerate(figures[1:], start=1):
            value = other[key].value if key in other else None
            if first and value and first * value > 0:
                quotients.setdefault(key, {})[i] = value / first
    apart = {key: max(abs(math.log(q)) for q in by.values()) for key, by in quotients.items()}
    drawn = sorted((key for key in quotients if apart[key]), key=lambda key: -apart[key])[:_MOST_DRAWN]
    if not drawn:
        return []
    points: dict[int, list[Point]] = {}
    names = tuple(figures[0][key].label for key in drawn)
    for index, key in enumerate(drawn):
        for i, quotient in quotients[key].items():
            point = Point(index, quotient, label=f"{names[index]}: {shown(quotient)} times")
            points.setdefault(i, []).append(point)
    unity = Series(f"the same as {labels[0]}", (Point(-0.5, 1.0), Point(len(drawn) - 0.5, 1.0)), "limit")
    series = (*(Series(labels[i], tuple(some)) for i, some in sorted(points.items())), unity)
    more = f"The {len(drawn)} that differ most." if len(drawn) < len(quotients) else ""
    title = f"Over the figures of {labels[0]}"
    return [Plot(title, "figure", "times", series, log=True, categories=names, note=more)]
