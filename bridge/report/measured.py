"""Converts one report for display: claims and tables for any kind of report, plots for known kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from bridge.common.drawing.plot import Plot
from bridge.common.drawing.text import cell, cut
from bridge.errors import ManifestError
from bridge.report import rows
from bridge.report.kinds import codec, decode, sweep
from bridge.report.loose import Row, items, mapping, number, numbers, plain, text
from bridge.report.model import Claim, Measured, Table
from bridge.reports.kinds import LEGACY
from bridge.reports.reading import parse_report

MAX_CLAIMS = 300
# Limits of a page, so that a browser can show it and a server can cache it: honest reports have a tenth of
# that.
MAX_TABLE_ROWS = 2_000
MAX_POINTS = 10_000
# Limits of cells and points of all reports of one run together, and the minimum that each report counts for.
MAX_SHOWN, _LEAST = 200_000, 100

Shown = tuple[list[Table], list[Plot]]


def read(data: bytes) -> Row:
    """Return a report.

    Raises:
        ManifestError: it cannot be read; the message says why.
    """
    return parse_report(data)


def each_measured(files: Iterable[tuple[str, bytes | None]]) -> Iterator[Measured]:
    """Yield the views of the reports of one run. Beyond the limit, reports are named and not read."""
    room = MAX_SHOWN
    for path, data in files:
        if room <= 0:
            yield Measured(path, "", problem="it is not shown, because the page would be too large")
            continue
        report = measured(path, data)
        cells = sum(len(table.rows) * len(table.columns) for table in report.tables)
        points = sum(len(series.points) for plot in report.plots for series in plot.series)
        room -= max(_LEAST, cells + points)
        yield report


def measured(path: str, data: bytes | None) -> Measured:
    """Return the view of one report, or the reason why it cannot be read."""
    if data is None:
        return Measured(path, "", problem="the file is missing")
    try:
        report = read(data)
    except ManifestError as error:
        return Measured(path, "", problem=error.message)
    kind = text(report.get("kind"))
    tables, plots = _SHOWN[kind](report) if kind in _SHOWN else ([], [])
    return Measured(
        path,
        cut(kind) or "a report of no kind",
        created_at=cut(text(report.get("created_at"))),
        seconds=number(report.get("seconds")),
        claims=claims_in(report),
        tables=tuple(map(_bounded, tables + rows.about(report) + _others(report))),
        plots=tuple(
            plot for plot in plots if sum(len(series.points) for series in plot.series) <= MAX_POINTS
        ),
    )


def _bounded(table: Table) -> Table:
    """Return a table without the rows beyond the limit."""
    if len(table.rows) <= MAX_TABLE_ROWS:
        return table
    note = f"The first {MAX_TABLE_ROWS} of {len(table.rows)} rows. {table.note}".strip()
    return replace(table, rows=table.rows[:MAX_TABLE_ROWS], note=note)


def claims_in(report: Row) -> tuple[Claim, ...]:
    """Return the claims of a report as written. The gate says whether they are true."""
    if report.get("kind") == LEGACY:
        cells = rows.flat(report)
        return tuple(Claim(name, number(cells[name]), arm=_OLD_ARM) for name in _OLD_CLAIMS if name in cells)
    return tuple(_claim(claim) for claim in items(report.get("claims"))[:MAX_CLAIMS])


def figures(report: Row) -> tuple[Claim, ...]:
    """Return the claims of a report and, for kinds whose rows are figures, these too."""
    more = codec.figures(report)[:MAX_TABLE_ROWS] if report.get("kind") == "kakeya.codec-rd" else ()
    return (*claims_in(report), *more)


def _claim(claim: Row) -> Claim:
    pair = numbers(claim.get("interval"))
    where = {name: value for name, value in mapping(claim.get("where")).items() if value is not None}
    return Claim(
        cut(text(claim.get("name")) or "a claim without a name"),
        number(claim.get("value")),
        cut(text(claim.get("definition")), 1000),
        arm=cut(text(claim.get("arm"))),
        against=cut(text(claim.get("against"))),
        where=cut(", ".join(f"{name} {cell(plain(value))}" for name, value in where.items())),
        interval=(pair[0], pair[1]) if len(pair) == 2 else None,  # noqa: PLR2004 - least and greatest
    )


def _others(report: Row) -> list[Table]:
    """Return fields that version 3 does not have, as in older and in invalid reports."""
    rest = {name: value for name, value in report.items() if name not in _ENVELOPE}
    return [rows.pairs("Other fields", rows.flat(rest), folded=True)] if rest else []


def _codec(report: Row) -> Shown:
    return codec.tables(report), codec.plots(report)


def _decoded(report: Row) -> Shown:
    return decode.arms_table(report), decode.speed_plots(report)


def _recalled(report: Row) -> Shown:
    tables, plots = decode.recall(report)
    return tables + decode.arms_table(report), plots


# The claims of schema 2, which are separate fields.
_OLD_ARM = "k3_cross_model"
_OLD_CLAIMS = (
    "throughput.cross_model_speedup_vs_oracle_ar",
    "throughput.decode_only.speedup",
    "gate.recall_cross_model",
    "memory.savings_vs_naive_pct",
)

_ENVELOPE = frozenset((
    "kind", "schema_version", "created_at", "seconds", "identity", "config", "models", "workloads", "prompts", "arms",
    "rows", "claims",
))  # fmt: skip

_SHOWN: dict[str, Callable[[Row], Shown]] = {
    "kakeya.codec-rd": _codec,
    "kakeya.spec-bench": _decoded,
    "kakeya.acceptance": _decoded,
    "kakeya.native": _decoded,
    "kakeya.recall": _recalled,
    "kakeya.restored-prefill": _recalled,
    "kakeya.verify-l": sweep.verify,
    "kakeya.kv-quant": sweep.quantised,
    "kakeya.parity": sweep.parity,
    "kakeya.serve-conformance": sweep.served,
    "kakeya.pass-at-1": sweep.solved,
}
