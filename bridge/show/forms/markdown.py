"""The view as Markdown, for a pull request comment: untrusted text cannot mention people, add links or open tags."""

import re
from collections.abc import Iterable

from bridge.common.drawing.plot import Plot
from bridge.common.drawing.text import cell, printable
from bridge.common.drawing.textplot import text_plot
from bridge.reports.views.model import Table
from bridge.reports.views.rows import claims_tables
from bridge.show.model import Facts, Fault, Log, ReportView, RunsView, RunView

MAX_ROWS = 60
MAX_PLOTS = 8

_EVIDENCE = {"signed": "signed with a pinned key", "unsigned": "unsigned", "broken": "**does not hold**"}
# What to escape: anywhere; after `www`, which makes a link; and at a line's start, where it makes a list or a title.
_MEANS_SOMETHING = re.compile(r"([\\`*_\[\]#|~:$]|(?<=www)\.|^[-+](?=\s|$)|^[-=](?=[-=\s]*$))", re.IGNORECASE)
_LISTS = re.compile(r"^(\d+)([.)])(?=\s|$)")
# If one of these precedes a name or number, GitHub notifies the person or links the issue.
_NAMES = re.compile(r"(@|#(?=\w)|\bGH-(?=\d))", re.IGNORECASE)
_NOTHING = "\u200b"


def markdown(view: RunsView) -> str:
    """Return the view as Markdown."""
    parts: list[str] = []
    if len(view.runs) > 1:
        parts += [f"## {escape(view.title)}", *_tables(view.tables)]
        parts += [
            _details(escape(table.title), [markdown_table(table)]) for table in view.tables if table.folded
        ]
    for run in view.runs:
        parts += _run(run)
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """Escape text for one line, including a table cell."""
    shown = printable(" ".join(text.splitlines()))
    shown = _MEANS_SOMETHING.sub(r"\\\1", _NAMES.sub(rf"\1{_NOTHING}", shown))
    shown = _LISTS.sub(r"\1\\\2", shown)
    shown = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # A terminal shows the character itself as an escape.
    return shown.replace(_NOTHING, "&ZeroWidthSpace;")


def fenced(lines: Iterable[str]) -> str:
    """Return lines as a code block with a fence that none of them can close."""
    text = "\n".join(printable(line) for line in lines)
    longest = max((len(ticks) for ticks in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _run(run: RunView) -> list[str]:
    shown = run.conclusion
    verdict = f", gate: {shown.judged}" if shown.judged else ""
    word = "**the answer does not hold**" if shown.is_refused else escape(shown.word)
    title = f"### {escape(run.preset)}: {word}{escape(verdict)}"
    evidence = f"Evidence: {_EVIDENCE[run.evidence.status]}. {escape(run.evidence.message)}"
    parts = [title, escape(run.reason), evidence, _facts(run.request)]
    if run.gate and run.gate.faults:
        parts.append("\n".join(map(_fault, run.gate.faults)))
    if run.gate and run.gate.notes:
        parts.append("\n".join(f"- Note: {escape(note)}" for note in run.gate.notes))
    for report in run.reports:
        parts += _report(report)
    parts += [_details("Host and versions", [_facts(run.host), _facts(run.versions)])]
    parts += [
        _details(
            "What was checked, and what ran", [markdown_table(run.evidence.checks), markdown_table(run.steps)]
        )
    ]
    parts += [_details(f"Log: {escape(log.path)}", [_log(log)]) for log in run.logs]
    parts.append(_details("Files", [markdown_table(run.files)]))
    if run.reproduce:
        parts.append(_details("Ask for the same, and check this answer", [fenced(run.reproduce)]))
    return parts


def _fault(fault: Fault) -> str:
    messages = "; ".join(map(escape, fault.messages)) + (f"; and {fault.more} more" if fault.more else "")
    explanation = f": {escape(fault.explanation)}" if fault.explanation else ""
    fix = f" Fix: {escape(fault.mend)}." if fault.mend else ""
    return f"- **{escape(fault.code)}**{explanation}. {messages}.{fix}"


def _report(report: ReportView) -> list[str]:
    parts = [f"#### {escape(report.kind or report.path)}", escape(report.problem)]
    parts += _tables((*claims_tables(report.claims), *report.tables))
    return parts + [part for plot in report.plots[:MAX_PLOTS] for part in _plot(plot)]


def _plot(plot: Plot) -> list[str]:
    lines = text_plot(plot)
    return [f"**{escape(plot.title)}**", fenced(lines), escape(plot.note)] if lines else []


def _tables(tables: Iterable[Table]) -> list[str]:
    return [
        part
        for table in tables
        if not table.folded
        for part in (f"**{escape(table.title)}**", markdown_table(table))
    ]


def markdown_table(table: Table, *, own: bool = False) -> str:
    """Return a table with its note, or nothing without rows. An ``own`` table is neither cut nor escaped."""
    if not table.rows:
        return ""
    rows = table.rows if own else table.rows[:MAX_ROWS]
    lines = [[cell(value) if own else escape(cell(value)) for value in row] for row in (table.columns, *rows)]
    lines.insert(1, ["---:" if numeric else "---" for _, numeric in table.headings])
    more = [f"{MAX_ROWS} of {len(table.rows)} rows."] if len(table.rows) > len(rows) else []
    note = " ".join([escape(table.note), *more]).strip()
    # Without the spaces, a backslash at the end of a cell would escape the bar.
    bar = "|" if own else " | "
    text = "\n".join(f"{bar}{bar.join(line)}{bar}".strip() for line in lines)
    return text + (f"\n\n{note}" if note else "")


def _facts(facts: Facts) -> str:
    rows = tuple((name, value) for name, value in facts if value not in (None, ""))
    return markdown_table(Table("", ("", " "), rows))


def _log(log: Log) -> str:
    left_out = [f"... {log.left_out} lines ..."] if log.left_out else []
    return fenced([*log.head, *left_out, *log.tail])


def _details(title: str, parts: list[str]) -> str:
    inner = "\n\n".join(part for part in parts if part)
    return f"<details><summary>{title}</summary>\n\n{inner}\n\n</details>" if inner else ""
