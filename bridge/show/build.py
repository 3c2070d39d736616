"""Builds the view of one or more answers."""

import shlex
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata

from bridge.bus import branch_names, wire
from bridge.bus.wire import Result, Violation
from bridge.checklist import SIGNATURE, Check
from bridge.common.advice import joined
from bridge.common.drawing.text import Cell, cut, printable, size
from bridge.errors import ManifestError
from bridge.gate.codes import CODES
from bridge.reports.compared import read_comparison
from bridge.reports.readable import without_digests
from bridge.reports.views.model import Table
from bridge.reports.views.rows import flat, without_empty
from bridge.show.compare import comparison
from bridge.show.model import Evidence, Facts, Fault, Judged, Log, RunsView, RunView
from bridge.show.report_view import report_views
from bridge.show.source import Source, own_kinds, reports_of
from bridge.verify.verdict import Conclusion, Trust, conclude
from bridge.without_bus import NO_FILES

HEAD_LINES, TAIL_LINES, MAX_LINE = 15, 40, 500

# At most this many violations of one rule are shown.
MAX_FOUND = 3

_MARKS = {True: "ok", False: "FAIL", None: "--"}


def view_of(sources: Sequence[Source]) -> RunsView:
    """Return the view of one run, or of several runs and their differences."""
    runs = tuple(_run(source) for source in sources)
    if len(runs) == 1:
        return RunsView(f"{runs[0].preset} {runs[0].conclusion.word}", runs)
    tables, plots = comparison(sources, runs)
    return RunsView(f"{len(runs)} runs compared", runs, tables, plots)


def version() -> str:
    """Return the version of this program."""
    return metadata.version("kakeya-bridge")


def _run(source: Source) -> RunView:
    result, shown = source.result, conclude(source.result, source.checks)
    files = tuple((file.path, size(file.size), file.sha256) for file in result.files)
    return RunView(
        name=source.name,
        preset=result.preset or "no preset",
        state=str(shown.state),
        exit_code=int(shown.exit_code or 0),
        reason=result.reason.message,
        conclusion=shown,
        request=_request_facts(result),
        outcome=_outcome(result, shown),
        host=tuple(flat(result.host).items()),
        versions=tuple(result.versions.items()),
        evidence=_evidence(source, shown),
        gate=_gate(result, shown),
        reports=tuple(
            report_views(((path, source.files.get(path)) for path in reports_of(result)), own_kinds(source))
        ),
        steps=_steps(result),
        logs=tuple(
            excerpt(log.path, source.files.get(log.path), cut_short=log.truncated) for log in result.logs
        ),
        files=Table("Files", ("file", "size", "SHA-256"), files),
        reproduce=_reproduce(result, source.files.get(wire.COMPARISON)),
    )


def _request_facts(result: Result) -> Facts:
    params = " ".join(f"{name}={value}" for name, value in result.params.items())
    code = {"installed": "what is installed on the runner", "request": "the tree of the request"}
    facts: list[tuple[str, Cell]] = [
        ("preset", result.preset),
        ("preset digest", result.preset_digest),
        ("parameters", params or "none"),
        ("asked by", result.requested_by),
        ("branch", result.branch),
        ("request commit", result.request),
        ("workload commit", result.workload),
        ("code", code.get(result.code or "")),
        ("trusted", result.trusted_by),
    ]
    return tuple((name, value) for name, value in facts if value not in (None, ""))


def _outcome(result: Result, shown: Conclusion) -> Facts:
    sandbox = {None: "unknown", "off": "none"}.get(result.sandbox, result.sandbox)
    return (
        ("state", shown.word),
        ("why", f"{result.reason.message} ({result.reason.code})"),
        ("exit code", shown.exit_code),
        ("started", result.started_at),
        ("finished", result.finished_at),
        ("seconds", result.seconds),
        ("runner", f"{result.runner.id}, kakeya-bridge {result.runner.version}"),
        ("sandbox", sandbox),
    )


def _evidence(source: Source, shown: Conclusion) -> Evidence:
    rows = tuple((_MARKS[check.ok], check.name, check.message) for check in source.checks)
    table = Table("What was checked here", ("", "check", "found"), rows)
    if shown.is_refused:
        failed = [check for check in source.checks if check.ok is False]
        message = "; ".join(f"{check.name}: {check.message}" for check in failed)
        return Evidence("broken", message, joined([check.fix for check in failed if check.fix]), table)
    unknown = Check(SIGNATURE, ok=None, message="nothing is known of a signature")
    signature = next((check for check in source.checks if check.name == SIGNATURE), unknown)
    if shown.trust is not Trust.SIGNED:
        return Evidence("unsigned", signature.message, signature.fix or "", table)
    return Evidence("signed", signature.message, "", table)


def _gate(result: Result, shown: Conclusion) -> Judged | None:
    """Return the measuring machine's verdict; None if that is an acceptance of an answer that does not hold."""
    if result.gate is None or (shown.is_refused and result.gate.accepted):
        return None
    grouped: dict[tuple[str, str], list[Violation]] = {}
    for violation in result.gate.violations:
        grouped.setdefault((violation.code, violation.path), []).append(violation)
    faults = tuple(_fault(*rule, several) for rule, several in grouped.items())
    return Judged(result.gate.verdict, faults, tuple(result.gate.notes))


def _fault(code: str, path: str, violations: Sequence[Violation]) -> Fault:
    """Return the violations of one rule. The rules installed here explain why it matters, if they know it."""
    known = CODES.get(code)
    reason, fix = (known.why, known.fix) if known else ("", "")
    messages = tuple(violation.message for violation in violations[:MAX_FOUND])
    return Fault(code, path, messages, len(violations) - len(messages), reason, violations[0].mend or fix)


def _steps(result: Result) -> Table:
    rows = tuple(
        (
            shlex.join(command.argv),
            f"signal {command.signal}" if command.signal else command.exit_code,
            command.seconds,
            size(command.max_rss_bytes) if command.max_rss_bytes else None,
            ", ".join(filter(None, ("time limit" if command.timed_out else "", command.exceeded or ""))),
        )
        for command in result.commands
    )
    columns = ("command", "exit code", "seconds", "most memory", "ended for")
    return without_empty(Table("What ran", columns, rows))


def excerpt(path: str, data: bytes | None, *, cut_short: bool) -> Log:
    """Return the first and the last lines of a log, without lines of digests."""
    if data is None:
        return Log(path, (), 0, (), "the file is missing")
    note = "the runner kept its head and tail alone" if cut_short else ""
    data = without_digests(data).removesuffix(b"\n")
    count = data.count(b"\n") + 1 if data else 0
    if count <= HEAD_LINES + TAIL_LINES:
        return Log(path, _lines(data.split(b"\n") if data else []), 0, (), note)
    # Split only the lines that are shown: a log may have millions.
    head = data.split(b"\n", HEAD_LINES)[:HEAD_LINES]
    tail = data.rsplit(b"\n", TAIL_LINES)[-TAIL_LINES:]
    return Log(path, _lines(head), count - HEAD_LINES - TAIL_LINES, _lines(tail), note)


def _lines(blocks: Sequence[bytes]) -> tuple[str, ...]:
    texts = (line[: 4 * MAX_LINE].decode("utf-8", "replace") for line in blocks)
    return tuple(cut(printable(text), MAX_LINE) for text in texts)


def _reproduce(result: Result, comparison: bytes | None) -> tuple[str, ...]:
    if not result.preset or not branch_names.PRESET.fullmatch(result.preset):
        return ()
    has_bus = result.workload != NO_FILES
    argv = ["kakeya", "run" if has_bus else "manifest", result.preset]
    for name, value in result.params.items():
        argv += ["-p", f"{name}={str(value).lower() if isinstance(value, bool) else value}"]
    if not has_bus:
        return (shlex.join(argv),)
    argv += ["--ref", result.workload] if result.workload else []
    with suppress(ManifestError):
        argv += ["--against", read_comparison(comparison).baseline] if comparison else []
    again = shlex.join([*argv, "--wait"])
    check = shlex.join(["kakeya", "verify", result.branch])
    return (again, check) if branch_names.is_safe(result.branch) else (again,)
