"""The gate: pure functions that judge reports.

A report counts because a run vouches for it; the checks judge the experiment. ``ACCEPTED`` needs a run that measured
the report and no check that objects. A file without a run is ``INCOMPLETE`` at most, with all checks applied.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Literal

from bridge.bus.wire import Gate, Violation
from bridge.common import limits
from bridge.common.errors import one_line
from bridge.gate import legacy
from bridge.gate.binding import RunBinding, has_run_id, mismatches, run_id
from bridge.gate.checks import checks_of
from bridge.gate.codes import CODES
from bridge.gate.deadline import Deadline, TooLongError
from bridge.gate.index import Check, ReportIndex
from bridge.gate.own import judge_own
from bridge.gate.typed import read_typed
from bridge.reports import SCHEMA_VERSION
from bridge.reports.kinds import KINDS, LEGACY
from bridge.reports.models import MODELS
from bridge.reports.reading import ReportFileError, parse_report

MAX_VIOLATIONS = limits.ANSWER_NOTES
# Code and message of a violation. In verdicts on several files, the file's path comes first.
Fault = tuple[str, ...]

# The run that vouches for a report; or a code and a message that say why none does.
Voucher = RunBinding | tuple[str, str]
NO_RUN: Voucher = ("NO_RUN", "no run vouches for this file")

Verdict = Literal["ACCEPTED", "ACCEPTED_BY_REQUESTER", "REJECTED", "INCOMPLETE"]

__all__ = [
    "KINDS",
    "MAX_VIOLATIONS",
    "NO_RUN",
    "RunBinding",
    "Voucher",
    "check_report",
    "has_run_id",
    "judge",
    "judge_each",
    "run_id",
    "verdict",
    "violation",
]


def check_report(
    report: Mapping[str, Any], run: Voucher = NO_RUN, deadline: Deadline | None = None
) -> list[Violation]:
    """Return all violations of a report. An empty list means that the gate accepts its claims.

    With a run, the report must also be the one that this run measured. Without a run, ``NO_RUN`` is one of the
    violations. Notes are left out. ``deadline`` ends the judging; by default, the report gets the time of a set of
    reports.
    """
    faults = _first(_faults(report, run, deadline or Deadline(limits.JUDGE_S)))
    return [violation(code, message) for code, message in faults if not _is_note(code)]


def judge(
    files: Mapping[str, bytes],
    kinds: Collection[str] | None = None,
    run: Voucher = NO_RUN,
    attend: Callable[[], None] | None = None,
) -> Gate:
    """Judge the reports among a run's files: those whose name ends in ``.json``.

    With ``kinds``, there must be exactly one report of each kind, and no other. All reports together get
    ``limits.JUDGE_S`` seconds. Meanwhile ``attend`` is called a few times a second; an exception from it ends the
    judging.
    """
    return judge_each(((path, data, run) for path, data in files.items()), kinds, attend)


def judge_each(
    files: Iterable[tuple[str, bytes | None, Voucher]],
    kinds: Collection[str] | None = None,
    attend: Callable[[], None] | None = None,
) -> Gate:
    """Judge like ``judge``, but read files on demand, each with its content and the run that vouches for it.

    The content is None if the file cannot be read.
    """
    deadline = Deadline(limits.JUDGE_S, attend)
    faults: list[Fault] = []
    seen_kinds: Counter[str] = Counter()
    number, is_late, by_requester = 0, False, False
    for path, data, run in files:
        if not path.endswith(".json"):
            continue
        number += 1
        is_late = is_late or deadline.is_over
        by_requester = by_requester or (isinstance(run, RunBinding) and run.requester_measured)
        kind, file_faults = _judge_file(data, run, kinds, deadline)
        seen_kinds[kind] += 1
        faults = _first((*faults, *((path, *fault) for fault in file_faults)))
    if not is_late:
        for kind, times in Counter(kinds or ()).items():
            if seen_kinds[kind] < times:
                due = f"there is no report of kind {kind}"
                due = due if times == 1 else f"{times} reports of kind {kind} are due"
                faults = _first((*faults, ("", "NO_REPORT", due)))
    if not number and not kinds:
        faults = [("", "NO_REPORT", "the preset promises a report and the run left none")]
    notes = [f"{path}: {code}: {one_line(message)}" for path, code, message in faults if _is_note(code)]
    violations = [violation(code, message, path) for path, code, message in faults if not _is_note(code)]
    return Gate(
        verdict=verdict(violations, by_requester=by_requester), violations=violations[:MAX_VIOLATIONS],
        notes=notes[:MAX_VIOLATIONS],
    )  # fmt: skip


def verdict(violations: Collection[Violation], *, by_requester: bool = False) -> Verdict:
    """Return the verdict for violations: INCOMPLETE if something is missing or uneven, but nothing is wrong."""
    effects = {CODES[each.code].effect for each in violations}
    if "REJECTED" in effects:
        return "REJECTED"
    if "INCOMPLETE" in effects:
        return "INCOMPLETE"
    return "ACCEPTED_BY_REQUESTER" if by_requester else "ACCEPTED"


def violation(code: str, message: str, path: str = "") -> Violation:
    """Return a violation with its fix."""
    return Violation(code=code, message=one_line(message), path=path, mend=CODES[code].fix)


def _is_note(code: str) -> bool:
    return CODES[code].effect == "NOTE"


def _judge_file(
    data: bytes | None, run: Voucher, kinds: Collection[str] | None, deadline: Deadline
) -> tuple[str, list[Fault]]:
    """Return the kind of a report and what is wrong with it."""
    if deadline.is_over:
        return "", [("JUDGED_TOO_LONG", f"the reports before it took all of the {limits.JUDGE_S:g} s")]
    if data is None:
        return "", [("UNREADABLE", "it is no regular file, or this user may not read it")]
    try:
        report = parse_report(data)
    except ReportFileError as error:
        return "", [("TOO_LARGE" if error.code == "too_large" else "UNREADABLE", error.message)]
    kind = str(report.get("kind"))
    if kinds and kind not in kinds:
        wanted = " or ".join(dict.fromkeys(kinds))
        return kind, [("WRONG_KIND", f"it is of kind {report.get('kind')!r}, not {wanted}")]
    return kind, _first(_faults(report, run, deadline, data))


def _first(faults: Iterable[Fault]) -> list[Fault]:
    """Return the first fault of each code, because the verdict depends on all codes, and the first distinct others."""
    of_code: dict[str, tuple[int, Fault]] = {}
    others: dict[Fault, int] = {}
    for number, fault in enumerate(faults):
        if of_code.setdefault(fault[-2], (number, fault))[1] != fault and len(others) < MAX_VIOLATIONS:
            others.setdefault(fault, number)
    more = [(number, fault) for fault, number in others.items()][: MAX_VIOLATIONS - len(of_code)]
    return [fault for _, fault in sorted([*of_code.values(), *more])]


def _faults(
    report: Mapping[str, Any], run: Voucher, deadline: Deadline, data: bytes = b""
) -> Iterator[tuple[str, str]]:
    """Yield violations as pairs of code and message, within the time that is left. ``data`` is the report's file."""
    kind = report.get("kind")
    if run != NO_RUN and isinstance(kind, str) and _is_others(kind):
        if not isinstance(run, RunBinding):
            # The run declares the kinds of report, so without a run nothing more can be said about this
            # report.
            yield run
            return
        try:
            yield from _guarded(kind, _others_faults(kind, report, run, deadline, data))
        except TooLongError:
            yield "JUDGED_TOO_LONG", f"within {limits.JUDGE_S:g} s its schema and claims were not all checked"
        return
    if not isinstance(run, RunBinding):
        yield run
    else:
        # Compare with the run first, so that a report of another run is noticed even if the checks run out of time.
        try:
            deadline.check()
            yield from _guarded("the binding to the run", mismatches(report, run, deadline))
        except TooLongError:
            yield "JUDGED_TOO_LONG", f"within {limits.JUDGE_S:g} s it was not compared with its run"
    try:
        yield from _experiment_faults(report, deadline)
    except TooLongError:
        yield "JUDGED_TOO_LONG", f"after {limits.JUDGE_S:g} s not all checks had been applied"


def _is_others(kind: str) -> bool:
    """Return whether a kind may be one that a preset declares."""
    return kind not in KINDS and not kind.startswith("kakeya.")


def _others_faults(
    kind: str, report: Mapping[str, Any], run: RunBinding, deadline: Deadline, data: bytes
) -> Iterator[tuple[str, str]]:
    if own := run.kinds.get(kind):
        yield from judge_own(own, report, hashlib.sha256(data).hexdigest(), run, deadline)
    else:
        yield "KIND_NOT_DECLARED", f"the preset does not declare reports of kind {kind[:80]!r}"


def _experiment_faults(report: Mapping[str, Any], deadline: Deadline) -> Iterator[tuple[str, str]]:
    kind, version = report.get("kind"), report.get("schema_version")
    if not isinstance(kind, str) or kind not in KINDS:
        yield "UNKNOWN_KIND", f"no check knows reports of kind {kind!r}"
    elif kind == LEGACY:
        yield from _guarded(kind, legacy.judge_legacy(report))
    elif version != SCHEMA_VERSION or isinstance(version, bool):
        yield "OTHER_VERSION", f"schema_version is {version!r}, not {SCHEMA_VERSION}"
    else:
        deadline.check()
        typed, faults = read_typed(MODELS[kind], report)
        yield from faults
        if typed is not None:
            index = ReportIndex(typed, report, deadline)
            for check in checks_of(kind):
                deadline.check()
                yield from _guarded(check.name, _apply(check, index))
            deadline.check()


def _apply(check: Check, index: ReportIndex) -> Iterator[tuple[str, str]]:
    for message in index.deadline.through(check.judge(index)):
        yield check.code, message


# Errors from values whose type or size allows no computation. Only this code reads values that the schema does
# not restrict.
_ODD_VALUES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def _guarded(name: str, faults: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield faults. If values are of a type or size with which nothing can be computed, that is the fault."""
    try:
        yield from faults
    except _ODD_VALUES as error:
        yield "MALFORMED", f"{name} cannot be judged: {type(error).__name__}: {error}"
