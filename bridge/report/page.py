"""The view as one self-contained HTML page: no script, no font and no image from anywhere else."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from bridge.report.build import version
from bridge.report.markup import Child, Markup, join, tag
from bridge.report.model import Cell, Facts, Log, Measured, Plot, RunsView, RunView, Table
from bridge.report.rows import claims_tables
from bridge.report.svg import figures
from bridge.report.text import cell, is_numeric

_GRADE = {
    "succeeded": "good", "ACCEPTED": "good", "signed": "good", "cancelled": "warn", "INCOMPLETE": "warn",
    "unsigned": "warn",
}  # fmt: skip
_EVIDENCE = {
    "signed": "signed with a pinned key",
    "unsigned": "nobody vouches for it",
    "broken": "does not hold",
}
_CODE_COLUMNS = ("SHA-256", "command", "branch", "file")
_CHECK = {"ok": "ok", "FAIL": "fail"}


def page(view: RunsView) -> str:
    """Return the page."""
    style = resources.files("bridge.report").joinpath("style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{view.title} - kakeya"),
        tag("style", Markup(style)),
    )
    alone = len(view.runs) == 1
    body = [_comparison(view)] if not alone else []
    body += [_run(run, i, alone=alone) for i, run in enumerate(view.runs)]
    foot = tag("footer", f"Made by kakeya-bridge {version()} from what lies on the bus.")
    html = tag("html", head, tag("body", *body, foot), lang="en")
    return f"<!DOCTYPE html>\n{html}\n"


def _comparison(view: RunsView) -> Markup:
    links = [
        tag("li", tag("a", f"run {i + 1}: {run.preset}, {run.state}", href=f"#run-{i + 1}"))
        for i, run in enumerate(view.runs)
    ]
    return tag(
        "section",
        tag("h1", view.title),
        tag("nav", tag("ul", *links)),
        *(table(one) for one in view.tables),
        _plots(view.plots),
    )


def _run(run: RunView, place: int, *, alone: bool) -> Markup:
    title = tag("h1", run.preset) if alone else tag("h2", f"Run {place + 1}: {run.preset}")
    return tag(
        "section",
        title,
        tag("p", run.name, class_="branch"),
        _badges(run),
        tag("p", run.reason),
        _gate(run),
        _evidence(run),
        tag(
            "div",
            tag("div", tag("h3", "Asked"), _facts(run.asked)),
            tag("div", tag("h3", "Answered"), _facts(run.outcome)),
            class_="pair",
        ),
        *(_report(report) for report in run.reports),
        tag(
            "div",
            tag("div", tag("h3", "Host"), _facts(run.host)),
            tag("div", tag("h3", "Versions"), _facts(run.versions)),
            class_="pair",
        ),
        table(run.evidence.checks),
        table(run.steps),
        *(_log(log) for log in run.logs),
        table(run.files),
        _reproduce(run),
        id_=f"run-{place + 1}",
    )


def _badges(run: RunView) -> Markup:
    words = [(run.state.replace("_", " "), run.state), (_EVIDENCE[run.evidence.status], run.evidence.status)]
    if run.gate:
        words.insert(1, (f"gate: {run.gate.verdict}", run.gate.verdict))
    # What an answer says of itself is worth nothing where it does not hold.
    believed = run.evidence.status != "broken"
    grades = [_GRADE.get(key, "bad") if believed or key == "broken" else "" for _, key in words]
    badges = [
        tag("span", word, class_=f"badge {grade}") for (word, _), grade in zip(words, grades, strict=True)
    ]
    return tag("p", *badges, class_="badges")


def _gate(run: RunView) -> Markup | None:
    if not run.gate or not run.gate.faults:
        return None
    faults = [
        tag(
            "li",
            tag("strong", fault.code),
            f": {fault.why}" if fault.why else None,
            tag("code", f" {fault.path}") if fault.path else None,
            *(tag("span", message, class_="found") for message in fault.found),
            tag("span", f"and {fault.more} more", class_="found") if fault.more else None,
            tag("span", f"Fix: {fault.mend}", class_="mend") if fault.mend else None,
        )
        for fault in run.gate.faults
    ]
    heading = tag("p", tag("strong", f"The gate says {run.gate.verdict}"))
    return tag("div", heading, tag("ul", *faults), class_=f"box {_GRADE.get(run.gate.verdict, 'bad')}")


def _evidence(run: RunView) -> Markup | None:
    said = run.evidence
    if said.status == "signed":
        return tag("p", said.message, class_="note")
    word = "This answer does not hold" if said.status == "broken" else "Who wrote this answer is not shown"
    heading = tag("p", tag("strong", word))
    fix = tag("p", said.fix) if said.fix else None
    return tag("div", heading, tag("p", said.message), fix, class_=f"box {_GRADE.get(said.status, 'bad')}")


def _facts(facts: Facts) -> Markup:
    pairs = (
        join(tag("dt", name), tag("dd", cell(value))) for name, value in facts if value not in (None, "")
    )
    return tag("dl", *pairs)


def _report(report: Measured) -> Markup:
    heading = tag("h2", report.kind or "A report that cannot be read")
    when = (
        f"{report.created_at}, {cell(report.seconds)} s" if report.seconds is not None else report.created_at
    )
    where = tag("p", tag("code", report.path), f" {when}", class_="note")
    if report.problem:
        return tag("section", heading, where, tag("div", tag("p", report.problem), class_="box bad"))
    return tag(
        "section",
        heading,
        where,
        *(table(one) for one in claims_tables(report.claims)),
        _plots(report.plots),
        *(table(one) for one in report.tables if not one.folded),
        *(table(one) for one in report.tables if one.folded),
    )


def table(one: Table) -> Markup | None:
    """Return a table that scrolls by itself where it is too wide; a folded one behind its title."""
    if not one.rows:
        return None
    columns = [tuple(row[i] for row in one.rows) for i in range(len(one.columns))]
    numeric = [is_numeric(column) for column in columns]
    headed = zip(one.columns, numeric, strict=True)
    head = (tag("th", name, scope="col", class_="n" if flush else None) for name, flush in headed)
    body = (
        tag("tr", *(_cell(*of) for of in zip(one.columns, row, numeric, strict=True))) for row in one.rows
    )
    note = tag("caption", one.note) if one.note else None
    made = tag(
        "div", tag("table", note, tag("thead", tag("tr", *head)), tag("tbody", *body)), class_="scroll"
    )
    if one.folded:
        return tag("details", tag("summary", one.title), made)
    return join(tag("h3", one.title), made)


def _cell(column: str, value: Cell, flush: bool) -> Markup:
    shown = cell(value)
    kind = "n" if flush else _CHECK.get(shown) if not column else "t code" if column in _CODE_COLUMNS else "t"
    return tag("td", shown, class_=kind)


def _plots(plots: tuple[Plot, ...]) -> Markup | None:
    return tag("div", *figures(plots), class_="plots") if plots else None


def _log(log: Log) -> Markup:
    note = tag("p", log.note, class_="note") if log.note else None
    lines: list[Child] = ["\n".join(log.head)]
    if log.left_out:
        lines += ["\n", tag("span", f"... {log.left_out} lines ...", class_="cut"), "\n"]
    lines.append("\n".join(log.tail))
    return join(tag("h3", f"Log: {log.path}"), note, tag("pre", *lines) if log.head else None)


def _reproduce(run: RunView) -> Markup | None:
    if not run.reproduce:
        return None
    return join(tag("h3", "Ask for the same, and check this answer"), tag("pre", "\n".join(run.reproduce)))
