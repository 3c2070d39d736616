"""Prints the view in a terminal."""

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bridge.common.drawing.text import cell, printable
from bridge.reports.views.rows import claims_tables
from bridge.reports.views.terminal import rich_table
from bridge.show.forms.words import color, grade
from bridge.show.model import Facts, ReportView, RunsView, RunView


def show(view: RunsView, out: Console) -> None:
    """Print the view."""
    if len(view.runs) > 1:
        for table in view.tables:
            out.print(rich_table(table, _styled))
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
    for note in run.gate.notes if run.gate else ():
        out.print(Padding(_plain(f"note: {note}"), (0, 0, 0, 2)))
    for report in run.reports:
        _report(report, out)
    for line in run.reproduce:
        out.print(_plain(f"$ {line}", "dim"))


def _heading(run: RunView) -> RenderableType:
    facts: Facts = (
        *((name, value) for name, value in run.request if name in ("parameters", "asked by", "branch")),
        *((name, value) for name, value in run.outcome if name in ("why", "finished", "seconds", "runner")),
    )
    grid = Table.grid(padding=(0, 2))
    shown = run.conclusion
    grid.add_row("state", _plain(shown.word, color(shown.grade)))
    if shown.judged:
        grid.add_row("gate", _plain(shown.judged, color(shown.verdict_grade)))
    grid.add_row("evidence", Text.assemble(_styled(run.evidence.status), f": {cell(run.evidence.message)}"))
    for name, value in facts:
        grid.add_row(_plain(name), Text(cell(value)))
    return grid


def _report(report: ReportView, out: Console) -> None:
    out.print(_plain(report.kind or report.path, "bold"))
    if report.problem:
        out.print(_plain(report.problem, "red"))
    for table in (*claims_tables(report.claims), *report.tables):
        if not table.folded:
            out.print(rich_table(table, _styled))


def _styled(shown: str) -> Text:
    return _plain(shown, color(grade(shown)))


def _plain(text: str, style: str = "") -> Text:
    """Return text without terminal control characters and console markup."""
    return Text(printable(text), style=style)
