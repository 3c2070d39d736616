"""Prints the view in a terminal."""

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bridge.common.drawing.text import cell, printable
from bridge.report.forms.words import color, is_graded
from bridge.report.model import Facts, Measured, RunsView, RunView
from bridge.reports.views.rows import claims_tables
from bridge.reports.views.terminal import rich_table


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
    grid = Table.grid(padding=(0, 2))
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
            out.print(rich_table(table, _styled))


def _styled(shown: str) -> Text:
    return _colored(shown) if is_graded(shown) else Text(shown)


def _plain(text: str, style: str = "") -> Text:
    """Return text without terminal control characters and console markup."""
    return Text(printable(text), style=style)


def _colored(word: str) -> Text:
    return _plain(word, color(word))
