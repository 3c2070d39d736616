"""Prints the view in a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich import table as rich_table
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from bridge.common.drawing.text import Cell, cell, is_numeric, printable
from bridge.report.model import Facts, Measured, RunsView, RunView, Table
from bridge.report.rows import claims_tables

MAX_ROWS = 40

_COLORS = {
    "succeeded": "green", "ACCEPTED": "green",
    "ACCEPTED_BY_REQUESTER": "yellow", "signed": "green", "cancelled": "yellow", "INCOMPLETE": "yellow",
    "unsigned": "yellow", "ok": "green", "--": "yellow",
}  # fmt: skip


def show(view: RunsView, out: Console) -> None:
    """Print the view."""
    if len(view.runs) > 1:
        for table in view.tables:
            _put(out, table)
    for run in view.runs:
        _show(run, out)


def _show(run: RunView, out: Console) -> None:
    out.print(Panel(_heading(run), title=_plain(run.preset), title_align="left"))
    for fault in run.gate.faults if run.gate else ():
        lines = [
            Text.assemble((cell(fault.code), "bold red"), " ", cell(fault.explanation)),
            *map(_plain, fault.messages),
        ]
        lines += [_plain(f"and {fault.more} more")] if fault.more else []
        lines += [_plain(f"fix: {fault.mend}", "dim")] if fault.mend else []
        out.print(Padding(Group(*lines), (0, 0, 0, 2)))
    for report in run.reports:
        _report(report, out)
    for line in run.reproduce:
        out.print(_plain(f"$ {line}", "dim"))


def _heading(run: RunView) -> RenderableType:
    verdict = run.gate.verdict if run.gate else None
    facts: Facts = (
        *((name, value) for name, value in run.request if name in ("parameters", "asked by", "branch")),
        *((name, value) for name, value in run.outcome if name in ("why", "finished", "seconds", "runner")),
    )
    grid = rich_table.Table.grid(padding=(0, 2))
    grid.add_row("state", _colored(run.state))
    if verdict:
        grid.add_row("gate", _colored(verdict))
    grid.add_row("evidence", Text.assemble(_colored(run.evidence.status), f": {cell(run.evidence.message)}"))
    for name, value in facts:
        grid.add_row(_plain(name), Text(cell(value)))
    return grid


def _report(report: Measured, out: Console) -> None:
    out.print(_plain(report.kind or report.path, "bold"))
    if report.problem:
        out.print(_plain(report.problem, "red"))
    for table in (*claims_tables(report.claims), *report.tables):
        if not table.folded:
            _put(out, table)


def _put(out: Console, table: Table) -> None:
    columns = [tuple(row[i] for row in table.rows) for i in range(len(table.columns))]
    grid = rich_table.Table(
        title=_plain(table.title), title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD
    )
    more = f" {MAX_ROWS} of {len(table.rows)} rows." if len(table.rows) > MAX_ROWS else ""
    if table.note or more:
        grid.caption = _plain(table.note + more, "dim")
    for name, column in zip(table.columns, columns, strict=True):
        grid.add_column(_plain(name), justify="right" if is_numeric(column) else "left", overflow="fold")
    for row in table.rows[:MAX_ROWS]:
        grid.add_row(*_cells(row))
    out.print(grid)


def _cells(row: Iterable[Cell]) -> list[Text]:
    return [_colored(shown) if (shown := cell(value)) in _COLORS else Text(shown) for value in row]


def _plain(text: str, style: str = "") -> Text:
    """Return text without terminal control characters and console markup."""
    return Text(printable(text), style=style)


def _colored(word: str) -> Text:
    return _plain(word, _COLORS.get(word, "red"))
