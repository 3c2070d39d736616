"""The gate: pure functions from a report to what is wrong with it. A report that no rule knows does not pass."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel

from bridge.bus.wire import Gate, Violation
from bridge.errors import ManifestError, one_line
from bridge.evidence import legacy
from bridge.evidence.bound import Bound, is_told, run_id, unbound
from bridge.evidence.kinds import MODELS
from bridge.evidence.names import KINDS, LEGACY
from bridge.evidence.rules import RULES, code_of
from bridge.evidence.shape import read
from bridge.evidence.table import TABLE
from bridge.evidence.view import TooLongError, View
from bridge.system import strict_json

SCHEMA_VERSION = 3

# A preset bounds its reports more tightly.
MAX_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 32

# A report of the size that presets allow is judged in a few seconds; one that is made to take longer is not judged.
MAX_SECONDS = 30.0

# More are not told: the verdict is clear by then, and the result stays readable.
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
    """Return every rule that a report breaks; an empty list means that its claims may be believed.

    With `bound`, the report has to be of that run, so far as it says of which run it is.
    """
    told: list[tuple[str, str]] = []
    first: dict[str, tuple[str, str]] = {}
    for one in (*_found(report), *(unbound(report, bound) if bound else ())):
        if len(told) < MAX_VIOLATIONS:
            told.append(one)
        elif one[0] not in first:
            first[one[0]] = one  # however much is told of others, the verdict is that of all
    known = {code for code, _ in told}
    late = [one for code, one in first.items() if code not in known]
    return [violation(*one) for one in (*told[: MAX_VIOLATIONS - len(late)], *late)]


def check_reports(
    reports: Mapping[str, Any], kinds: Collection[str] | None = None, bound: Bound | None = None
) -> Gate:
    """Judge all reports of a run, given as `{path: parsed JSON, or None where it could not be parsed}`.

    With `kinds`, each report must be of one of them, and of each there must be one. `bound`: see `check_report`.
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
    """Judge the reports among the files that a run left: those whose name ends in `.json`."""
    return check_reports(
        {path: _parse(data) for path, data in files.items() if path.endswith(".json")}, kinds, bound
    )


def verdict(found: Collection[Violation]) -> Literal["ACCEPTED", "REJECTED", "INCOMPLETE"]:
    """Say what a list of violations amounts to: INCOMPLETE if things are missing or unclear, and nothing is wrong."""
    if not found:
        return "ACCEPTED"
    return "REJECTED" if any(TABLE[one.code].verdict == "REJECTED" for one in found) else "INCOMPLETE"


def violation(code: str, message: str) -> Violation:
    """Return what is wrong, with what would mend it."""
    return Violation(code=code, message=one_line(message), mend=TABLE[code].mend)


def _check_one(report: object, kinds: Collection[str] | None, bound: Bound | None) -> list[Violation]:
    if not isinstance(report, dict):
        return [violation("UNREADABLE", "it is not one JSON object")]
    if kinds and report.get("kind") not in [*kinds]:
        return [violation("WRONG_KIND", f"it is of kind {report.get('kind')!r}, not {' or '.join(kinds)}")]
    return check_report(report, bound)


def _found(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong as pairs of code and message."""
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
        subject = read_report if old else View(read_report, MAX_SECONDS)  # type: ignore[arg-type]
        until = time.monotonic() + MAX_SECONDS
        try:
            for rule in RULES[kind]:
                for message in rule(subject):
                    yield code_of(rule), message
                    _look_at_the_clock(until)
                _look_at_the_clock(until)
        except TooLongError:
            yield "JUDGED_TOO_LONG", f"after {MAX_SECONDS:g} s not all rules had been held against it"


def _look_at_the_clock(until: float) -> None:
    if time.monotonic() > until:
        raise TooLongError


def _parse(data: bytes) -> object:
    """Return a report, or None where it is not one JSON text with one meaning."""
    try:
        return strict_json.loads(data, what="the report", max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
    except ManifestError:
        return None
