"""Converts one report for display: claims and tables for any kind of report, plots for known kinds."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from bridge.common.drawing.plot import Plot
from bridge.common.drawing.text import cut
from bridge.errors import ManifestError
from bridge.reports.own import OwnKind
from bridge.reports.reading import parse_report
from bridge.reports.views import codec, rows
from bridge.reports.views.kinds import claims_in, shown
from bridge.reports.views.loose import Row, number, text
from bridge.reports.views.model import Claim, Table
from bridge.show.model import ReportView

# Limits of a page, so that a browser can show it and a server can cache it: honest reports have a tenth of that.
MAX_TABLE_ROWS = 2_000
MAX_POINTS = 10_000
# The limit of cells and points in all reports of one run, and the least number that each report counts for.
MAX_SHOWN, _LEAST = 200_000, 100


def report_views(
    files: Iterable[tuple[str, bytes | None]], own: Mapping[str, OwnKind] | None = None
) -> Iterator[ReportView]:
    """Yield the views of the reports of one run. Beyond the limit, reports are named and not read.

    ``own`` are the kinds that the run's preset declares.
    """
    room = MAX_SHOWN
    for path, data in files:
        if room <= 0:
            yield ReportView(path, "", problem="it is not shown, because the page would be too large")
            continue
        report = report_view(path, data, own)
        cells = sum(len(table.rows) * len(table.columns) for table in report.tables)
        room -= max(_LEAST, cells + sum(map(_points, report.plots)))
        yield report


def report_view(path: str, data: bytes | None, own: Mapping[str, OwnKind] | None = None) -> ReportView:
    """Return the view of one report, or the reason why it cannot be read."""
    if data is None:
        return ReportView(path, "", problem="the file is missing")
    try:
        report = parse_report(data)
    except ManifestError as error:
        return ReportView(path, "", problem=error.message)
    kind = text(report.get("kind"))
    tables, plots = shown(report)
    return ReportView(
        path,
        cut(kind) or "a report of no kind",
        created_at=cut(text(report.get("created_at"))),
        seconds=number(report.get("seconds")),
        claims=claims_in(report, own),
        tables=tuple(map(_bounded, tables + rows.about(report) + _others(report))),
        plots=tuple(plot for plot in plots if _points(plot) <= MAX_POINTS),
    )


def _points(plot: Plot) -> int:
    return sum(len(series.points) for series in plot.series)


def _bounded(table: Table) -> Table:
    if len(table.rows) <= MAX_TABLE_ROWS:
        return table
    note = f"The first {MAX_TABLE_ROWS} of {len(table.rows)} rows. {table.note}".strip()
    return replace(table, rows=table.rows[:MAX_TABLE_ROWS], note=note)


def figures(report: Row, own: Mapping[str, OwnKind] | None = None) -> tuple[Claim, ...]:
    """Return the claims of a report and, if its kind's rows are figures, the rows too."""
    more = codec.figures(report)[:MAX_TABLE_ROWS] if report.get("kind") == "kakeya.codec-rd" else ()
    return (*claims_in(report, own), *more)


def _others(report: Row) -> list[Table]:
    """Return fields that version 3 does not have, as in older and in invalid reports."""
    rest = {name: value for name, value in report.items() if name not in _ENVELOPE}
    return [rows.pairs("Other fields", rows.flat(rest))] if rest else []


_ENVELOPE = frozenset((
    "kind", "schema_version", "created_at", "seconds", "identity", "config", "models", "workloads", "prompts", "arms",
    "rows", "claims",
))  # fmt: skip
