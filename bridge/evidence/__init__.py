"""The gate: pure functions that return what is wrong with a report. A report of an unknown kind does not pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel

from bridge import limits
from bridge.bus.wire import Gate, Violation
from bridge.errors import ManifestError, one_line
from bridge.evidence import legacy
from bridge.evidence.bound import Bound, is_told, run_id, unbound
from bridge.evidence.clock import Clock, TooLongError
from bridge.evidence.kinds import MODELS
from bridge.evidence.laws.meaning import DEFINITIONS
from bridge.evidence.names import KINDS, LEGACY
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rule import Rule
from bridge.evidence.rules import RULES
from bridge.evidence.shape import read
from bridge.evidence.table import TABLE
from bridge.system import strict_json

SCHEMA_VERSION = 3

MAX_BYTES = limits.REPORT_BYTES
MAX_DEPTH = 32

MAX_VIOLATIONS = limits.ANSWER_NOTES
# Of one code, so many places are kept apart while a report is judged.
_PLACES = 1_000

__all__ = [
    "KINDS",
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_VIOLATIONS",
    "Bound",
    "check_report",
    "check_reports",
    "faults",
    "is_told",
    "judge",
    "judge_each",
    "run_id",
    "verdict",
    "violation",
]


def check_report(
    report: Mapping[str, Any], bound: Bound | None = None, clock: Clock | None = None
) -> list[Violation]:
    """Return all violations of a report. An empty list means that the gate accepts its claims.

    With ``bound``, the report must also match that run, as far as it names a run. ``clock`` ends the judging; without
    it, the report has the time of a set of reports.
    """
    return _first(violation(*one) for one in _once(_faults(report, bound, clock or Clock(limits.JUDGE_S))))


def _first(found: Iterable[Violation]) -> list[Violation]:
    """Return the first violations, and one of each code that is found later: the verdict counts all of them."""
    told: list[Violation] = []
    late: dict[str, Violation] = {}
    for one in found:
        if len(told) < MAX_VIOLATIONS:
            told.append(one)
        else:
            late.setdefault(one.code, one)
    known = {one.code for one in told}
    last = [one for code, one in late.items() if code not in known]
    return [*told[: MAX_VIOLATIONS - len(last)], *last]


def _once(found: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield each fault once: what is found again for every claim about one place is one fault, with their number."""
    claims: dict[tuple[str, str], tuple[str, set[str]]] = {}
    places: Counter[str] = Counter()
    for code, message in found:
        name, colon, rest = message.partition(": ")
        about_claim = bool(colon) and name in DEFINITIONS
        key = code, rest if about_claim else message
        if key not in claims:
            if places[code] >= _PLACES:
                continue
            places[code] += 1
            claims[key] = message, set()
        claims[key][1].add(name if about_claim else "")
    for (code, place), (message, names) in claims.items():
        yield code, message if len(names) == 1 else f"{place} (found for {len(names)} kinds of claims)"


def check_reports(
    reports: Mapping[str, Any], kinds: Collection[str] | None = None, bound: Bound | None = None
) -> Gate:
    """Check all reports of a run, given as ``{path: parsed JSON, or None if it could not be parsed}``.

    With ``kinds``, there must be exactly one report of each kind, and no other. ``bound``: see ``check_report``.
    """
    return _check_all(reports.items(), kinds, bound, Clock(limits.JUDGE_S))


def judge(
    files: Mapping[str, bytes],
    kinds: Collection[str] | None = None,
    bound: Bound | None = None,
    attend: Callable[[], None] | None = None,
) -> Gate:
    """Check the reports among a run's files: those whose name ends in ``.json``.

    All of them together have ``limits.JUDGE_S`` seconds. Meanwhile, ``attend`` is called a few times a second; what it
    raises ends the judging.
    """
    return judge_each(files.items(), kinds, bound, attend)


def judge_each(
    files: Iterable[tuple[str, bytes]],
    kinds: Collection[str] | None = None,
    bound: Bound | None = None,
    attend: Callable[[], None] | None = None,
) -> Gate:
    """Do what ``judge`` does with files that are read when they are asked for: one at a time is in memory."""
    clock = Clock(limits.JUDGE_S, attend)
    return _check_all(_parsed(files, clock), kinds, bound, clock)


# Stands for a report that was not parsed in time.
_LATE = object()


def _parsed(files: Iterable[tuple[str, bytes]], clock: Clock) -> Iterator[tuple[str, object]]:
    """Yield each report's path and content, one after the other: together they may not fit into memory."""
    for path, data in files:
        if path.endswith(".json"):
            yield path, _LATE if clock.is_over else _parse(data)


def _check_all(
    reports: Iterable[tuple[str, object]], kinds: Collection[str] | None, bound: Bound | None, clock: Clock
) -> Gate:
    found: list[Violation] = []
    there: list[str] = []
    number, late = 0, False
    for path, report in reports:
        number, late = number + 1, late or report is _LATE
        kind = report.get("kind") if isinstance(report, dict) else None
        there += [kind] if isinstance(kind, str) else []
        told = (one.model_copy(update={"path": path}) for one in _check_one(report, kinds, bound, clock))
        found = _first((*found, *told))
        del report, told
    if not late:
        missing = [kind for kind in kinds or () if kind not in there]
        found += [violation("NO_REPORT", f"there is no report of kind {kind}") for kind in missing]
    if not number and not kinds:
        found = [violation("NO_REPORT", "the preset promises a report and the run left none")]
    return Gate(verdict=verdict(found), violations=found[:MAX_VIOLATIONS])


def verdict(found: Collection[Violation]) -> Literal["ACCEPTED", "REJECTED", "INCOMPLETE"]:
    """Return the verdict for violations: INCOMPLETE if something is missing or unclear, but nothing is wrong."""
    if not found:
        return "ACCEPTED"
    return "REJECTED" if any(TABLE[one.code].verdict == "REJECTED" for one in found) else "INCOMPLETE"


def violation(code: str, message: str) -> Violation:
    """Return a violation with its fix."""
    return Violation(code=code, message=one_line(message), mend=TABLE[code].mend)


def _check_one(
    report: object, kinds: Collection[str] | None, bound: Bound | None, clock: Clock
) -> list[Violation]:
    if report is _LATE:
        return [violation("JUDGED_TOO_LONG", f"the reports before it took all of the {limits.JUDGE_S:g} s")]
    if not isinstance(report, dict):
        return [violation("UNREADABLE", "it is not one JSON object")]
    if kinds and report.get("kind") not in [*kinds]:
        return [violation("WRONG_KIND", f"it is of kind {report.get('kind')!r}, not {' or '.join(kinds)}")]
    return check_report(report, bound, clock)


def _faults(report: Mapping[str, Any], bound: Bound | None, clock: Clock) -> Iterator[tuple[str, str]]:
    """Yield violations as pairs of code and message, within the time that is left."""
    try:
        clock.look()
        # This comes first, so that no time that the rules take hides that the report is of another run.
        odd = [*_unbound(report, bound, clock)] if bound else []
    except TooLongError:
        odd = [("JUDGED_TOO_LONG", f"within {limits.JUDGE_S:g} s it was not compared with its run")]
    try:
        yield from faults(report, clock)
    except TooLongError:
        yield "JUDGED_TOO_LONG", f"after {limits.JUDGE_S:g} s not all rules had been held against it"
    yield from odd


def faults(report: Mapping[str, Any], clock: Clock | None = None) -> Iterator[tuple[str, str]]:
    """Yield the faults of a report, as pairs of code and message, while they are found.

    Raises:
        TooLongError: the time of the clock is over; without one, that of a set of reports.
    """
    clock = clock or Clock(limits.JUDGE_S)
    kind, version = report.get("kind"), report.get("schema_version")
    if not isinstance(kind, str) or kind not in RULES:
        yield "UNKNOWN_KIND", f"no rule knows reports of kind {kind!r}"
        return
    old = kind == LEGACY
    wanted = legacy.SCHEMA_VERSION if old else SCHEMA_VERSION
    if version != wanted or isinstance(version, bool):
        early = old and not (isinstance(version, int) and version > wanted)
        yield "LEGACY_SCHEMA" if early else "UNKNOWN_SCHEMA", f"schema_version is {version!r}, not {wanted}"
        return
    clock.look()
    model: type[BaseModel] = legacy.Legacy if old else MODELS[kind]
    read_report, wrong = read(model, report)
    yield from wrong
    if read_report is not None:
        subject = read_report if old else ReportIndex(read_report, clock)  # type: ignore[arg-type]
        for rule in RULES[kind]:
            clock.look()
            for one in _apply(rule, subject):
                yield one
                clock.look()
        clock.look()


# Raised for values of a type or size with which nothing can be computed. Nothing else reads a report's free values.
_ODD_VALUES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def _apply(rule: Rule, subject: Any) -> Iterator[tuple[str, str]]:
    """Yield a rule's faults. If values are of a type or size with which it cannot compute, that is the fault."""
    try:
        for message in rule(subject):
            yield rule.code, message
    except _ODD_VALUES as error:
        about = ", ".join(getattr(rule, "fields", ())) or rule.name
        yield "MALFORMED", f"{rule.code} cannot be judged ({type(error).__name__}); it is about {about}"


def _unbound(report: Mapping[str, Any], bound: Bound, clock: Clock) -> Iterator[tuple[str, str]]:
    try:
        yield from unbound(report, bound, clock)
    except _ODD_VALUES as error:
        yield "MALFORMED", f"the report cannot be compared with its run ({type(error).__name__})"


def _parse(data: bytes) -> object:
    """Parse a report; None if it is not exactly one unambiguous JSON value."""
    try:
        return strict_json.loads(data, what="the report", max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
    except ManifestError:
        return None
