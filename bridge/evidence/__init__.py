"""The gate: pure functions that return what is wrong with a report. A report of an unknown kind does not pass."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel

from bridge.bus.wire import Gate, Violation
from bridge.errors import ManifestError, one_line
from bridge.evidence import legacy
from bridge.evidence.bound import Bound, is_told, run_id, unbound
from bridge.evidence.kinds import MODELS
from bridge.evidence.laws.meaning import DEFINITIONS
from bridge.evidence.names import KINDS, LEGACY
from bridge.evidence.report_index import ReportIndex, TooLongError
from bridge.evidence.rule import Rule
from bridge.evidence.rules import RULES
from bridge.evidence.shape import read
from bridge.evidence.table import TABLE
from bridge.system import strict_json

SCHEMA_VERSION = 3

# A preset bounds its reports more tightly.
MAX_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 32

# Time limit. Checking a report of the allowed size takes a few seconds; a report that takes longer is refused.
MAX_SECONDS = 30.0

# Maximum number of violations in a result. By then the verdict is clear, and the result stays readable.
MAX_VIOLATIONS = 100

__all__ = [
    "KINDS",
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_VIOLATIONS",
    "Bound",
    "check_report",
    "check_reports",
    "is_told",
    "judge",
    "run_id",
    "verdict",
    "violation",
]


def check_report(report: Mapping[str, Any], bound: Bound | None = None) -> list[Violation]:
    """Return all violations of a report. An empty list means that the gate accepts its claims.

    With ``bound``, the report must also match that run, as far as it names a run.
    """
    told: list[tuple[str, str]] = []
    first: dict[str, tuple[str, str]] = {}
    for one in _once((*_found(report), *(_unbound(report, bound) if bound else ()))):
        if len(told) < MAX_VIOLATIONS:
            told.append(one)
        elif one[0] not in first:
            first[one[0]] = one  # even if only some violations are listed, the verdict counts all of them
    known = {code for code, _ in told}
    late = [one for code, one in first.items() if code not in known]
    return [violation(*one) for one in (*told[: MAX_VIOLATIONS - len(late)], *late)]


def _once(found: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield each fault once: what is found again for every claim about one place is one fault, with their number."""
    claims: dict[tuple[str, str], list[str]] = {}
    for code, message in found:
        name, colon, rest = message.partition(": ")
        place = rest if colon and name in DEFINITIONS else message
        claims.setdefault((code, place), []).append(message)
    for (code, place), messages in claims.items():
        names = {*(message.partition(": ")[0] for message in messages)}
        yield code, messages[0] if len(names) == 1 else f"{place} (found for {len(names)} kinds of claims)"


def check_reports(
    reports: Mapping[str, Any], kinds: Collection[str] | None = None, bound: Bound | None = None
) -> Gate:
    """Check all reports of a run, given as ``{path: parsed JSON, or None if it could not be parsed}``.

    With ``kinds``, there must be exactly one report of each kind, and no other. ``bound``: see ``check_report``.
    """
    found = [
        one.model_copy(update={"path": path})
        for path, report in reports.items()
        for one in _check_one(report, kinds, bound)
    ]
    there = [report.get("kind") for report in reports.values() if isinstance(report, dict)]
    found += [
        violation("NO_REPORT", f"there is no report of kind {k}") for k in kinds or () if k not in there
    ]
    if not reports and not kinds:
        found = [violation("NO_REPORT", "the preset promises a report and the run left none")]
    return Gate(verdict=verdict(found), violations=found[:MAX_VIOLATIONS])


def judge(
    files: Mapping[str, bytes], kinds: Collection[str] | None = None, bound: Bound | None = None
) -> Gate:
    """Check the reports among a run's files: those whose name ends in ``.json``."""
    return check_reports(
        {path: _parse(data) for path, data in files.items() if path.endswith(".json")}, kinds, bound
    )


def verdict(found: Collection[Violation]) -> Literal["ACCEPTED", "REJECTED", "INCOMPLETE"]:
    """Return the verdict for violations: INCOMPLETE if something is missing or unclear, but nothing is wrong."""
    if not found:
        return "ACCEPTED"
    return "REJECTED" if any(TABLE[one.code].verdict == "REJECTED" for one in found) else "INCOMPLETE"


def violation(code: str, message: str) -> Violation:
    """Return a violation with its fix."""
    return Violation(code=code, message=one_line(message), mend=TABLE[code].mend)


def _check_one(report: object, kinds: Collection[str] | None, bound: Bound | None) -> list[Violation]:
    if not isinstance(report, dict):
        return [violation("UNREADABLE", "it is not one JSON object")]
    if kinds and report.get("kind") not in [*kinds]:
        return [violation("WRONG_KIND", f"it is of kind {report.get('kind')!r}, not {' or '.join(kinds)}")]
    return check_report(report, bound)


def _found(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield violations as pairs of code and message."""
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
    model: type[BaseModel] = legacy.Legacy if old else MODELS[kind]
    read_report, wrong = read(model, report)
    yield from wrong
    if read_report is not None:
        subject = read_report if old else ReportIndex(read_report, MAX_SECONDS)  # type: ignore[arg-type]
        until = time.monotonic() + MAX_SECONDS
        try:
            for rule in RULES[kind]:
                for one in _apply(rule, subject):
                    yield one
                    _look_at_the_clock(until)
                _look_at_the_clock(until)
        except TooLongError:
            yield "JUDGED_TOO_LONG", f"after {MAX_SECONDS:g} s not all rules had been held against it"


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


def _unbound(report: Mapping[str, Any], bound: Bound) -> Iterator[tuple[str, str]]:
    try:
        yield from unbound(report, bound)
    except _ODD_VALUES as error:
        yield "MALFORMED", f"the report cannot be compared with its run ({type(error).__name__})"


def _look_at_the_clock(until: float) -> None:
    if time.monotonic() > until:
        raise TooLongError


def _parse(data: bytes) -> object:
    """Parse a report; None if it is not exactly one unambiguous JSON value."""
    try:
        return strict_json.loads(data, what="the report", max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
    except ManifestError:
        return None
