"""What differs between runs: their figures side by side, and everything that was not the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bridge.errors import ManifestError
from bridge.report.measured import figures, read
from bridge.report.model import Cell, Claim, Facts, Plot, Point, RunView, Series, Table
from bridge.report.source import Source, reports_of
from bridge.report.text import number as shown

_MOST_DRAWN = 30
# What differs between any two runs, and says nothing about their figures.
_UNLIKE_BY_NATURE = ("branch", "request commit", "started", "finished", "seconds", "why")

Key = tuple[str, str]


def figures_of(source: Source) -> dict[Key, Claim]:
    """Return the figures of all of an answer's reports, by name and what each is about. Unreadable ones have none."""
    found: dict[Key, Claim] = {}
    for path in reports_of(source.result):
        try:
            report = read(source.files.get(path, b""))
        except ManifestError:
            continue
        for claim in figures(report):
            found.setdefault((claim.name, claim.about), claim)
    return found


def compared(
    sources: Sequence[Source], runs: Sequence[RunView]
) -> tuple[tuple[Table, ...], tuple[Plot, ...]]:
    """Return the tables and plots of a comparison. The first run is what the others are compared with."""
    found = [figures_of(source) for source in sources]
    keys = list(dict.fromkeys(key for one in found for key in one))
    tables = [_overview(runs), _figures(found, keys), _unlike(runs)]
    return tuple(table for table in tables if table.rows), tuple(_quotients(found, keys))


def label(place: int) -> str:
    """Return what a run is called beside others."""
    return f"run {place + 1}"


def _overview(runs: Sequence[RunView]) -> Table:
    rows = tuple(
        (
            label(i),
            run.preset,
            run.state,
            run.gate.verdict if run.gate else None,
            run.evidence.status,
            run.name,
        )
        for i, run in enumerate(runs)
    )
    return Table("Runs", ("", "preset", "state", "gate", "evidence", "branch"), rows)


def _figures(found: Sequence[Mapping[Key, Claim]], keys: Sequence[Key]) -> Table:
    cells: list[tuple[Cell, ...]] = []
    for name, about in keys:
        values = [one[name, about].value if (name, about) in one else None for one in found]
        changes = [_change(values[0], value) for value in values[1:]]
        cells.append((name, about, *values, *changes))
    columns = ["figure", "of", *(label(i) for i in range(len(found)))]
    columns += [f"{label(i)} to {label(0)}" for i in range(1, len(found))]
    return Table("Figures side by side", tuple(columns), tuple(cells), folded=len(cells) > _MOST_DRAWN)


def _change(first: float | None, other: float | None) -> Cell:
    if first is None or other is None:
        return None
    if first == other:
        return "equal"
    return f"{shown(other / first)}x" if first else None


def _unlike(runs: Sequence[RunView]) -> Table:
    """Return the facts in which the runs differ."""
    facts = [
        {f"{part}: {name}": value for part, pairs in _parts(run) for name, value in pairs} for run in runs
    ]
    names = list(dict.fromkeys(name for one in facts for name in one))
    rows = tuple(
        (name, *(one.get(name) for one in facts)) for name in names
        if len({one.get(name) for one in facts}) > 1 and name.partition(": ")[2] not in _UNLIKE_BY_NATURE
    )  # fmt: skip
    return Table("What else differs", ("", *(label(i) for i in range(len(runs)))), rows)


def _parts(run: RunView) -> Iterable[tuple[str, Facts]]:
    return (("asked", run.asked), ("outcome", run.outcome), ("host", run.host), ("version", run.versions))


def _quotients(found: Sequence[Mapping[Key, Claim]], keys: Sequence[Key]) -> list[Plot]:
    """Return one line a figure: each run's over the first one's."""
    drawn: list[Key] = []
    points: dict[int, list[Point]] = {}
    for key in keys:
        values = [one[key].value if key in one else None for one in found]
        first = values[0]
        if not first or all(value in (None, first) for value in values[1:]) or len(drawn) == _MOST_DRAWN:
            continue
        for i, value in enumerate(values[1:], start=1):
            if value is not None:
                about = f"{key[0]}: {key[1]}: {shown(value)} over {shown(first)}"
                points.setdefault(i, []).append(Point(len(drawn), value / first, label=about))
        drawn.append(key)
    if not drawn:
        return []
    lines = tuple(f"{name}: {about}" if about else name for name, about in drawn)
    one = Series("the same as run 1", (Point(-0.5, 1.0), Point(len(drawn) - 0.5, 1.0)), "limit")
    series = (one, *(Series(label(i), tuple(some)) for i, some in points.items()))
    more = f"The first {_MOST_DRAWN} figures that differ." if len(drawn) == _MOST_DRAWN else ""
    return [Plot("Figures over those of run 1", "figure", "quotient", series, categories=lines, note=more)]
