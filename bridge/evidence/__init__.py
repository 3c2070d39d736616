"""The gate: pure functions from a report to what is wrong with it. A report that no rule knows does not pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from bridge import strictjson
from bridge.errors import ManifestError, one_line
from bridge.wire import Gate, Violation

CODEC_RD = "kakeya.codec-rd"
SCHEMA_VERSION = 3

# Where fewer bits than the rate-distortion function allows are claimed, the sample itself leaves this much
# room (in standard errors), or the arithmetic is wrong.
_SIGMAS = 6.0

# Beyond any measure: what is larger is no number that was measured, and could not be reckoned with.
_HUGE = 1e15

# A preset bounds its reports more tightly.
MAX_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 32

# More are not told: the verdict is clear by then, and the result stays readable.
MAX_VIOLATIONS = 100

_IDENTITY = ("host", "os", "chip", "device", "versions", "blas")
_ROW_NUMBERS = ("stored_bits_per_value", "rel_mse", "rel_mse_stderr", "limit", "n_vectors")

Rule = Callable[[Mapping[str, Any]], Iterator[Violation]]


def check_report(report: Mapping[str, Any]) -> list[Violation]:
    """Return every rule that a report breaks; an empty list means that its claims may be believed."""
    kind, version = report.get("kind"), report.get("schema_version")
    if not isinstance(kind, str) or kind not in RULES:
        message = one_line(f"no rule knows reports of kind {kind!r}")
        return [Violation(code="UNKNOWN_KIND", message=message)]
    if version != SCHEMA_VERSION:
        message = one_line(f"schema_version is {version!r}, not {SCHEMA_VERSION}")
        return [Violation(code="UNKNOWN_SCHEMA", message=message)]
    found = (violation for rule in RULES[kind] for violation in rule(report))
    return list(islice(found, MAX_VIOLATIONS))


def check_reports(reports: Mapping[str, Any]) -> Gate:
    """Judge all reports of a run, given as `{path: parsed JSON, or None where it could not be parsed}`."""
    if not reports:
        nothing = Violation(code="NO_REPORT", message="the preset promises a report and the run left none")
        return Gate(verdict="INCOMPLETE", violations=[nothing])
    found = []
    for path, report in reports.items():
        if not isinstance(report, dict):
            found.append(Violation(code="UNREADABLE", message="it is not one JSON object", path=path))
            continue
        found += [violation.model_copy(update={"path": path}) for violation in check_report(report)]
    return Gate(verdict="REJECTED" if found else "ACCEPTED", violations=found[:MAX_VIOLATIONS])


def judge(files: Mapping[str, bytes]) -> Gate:
    """Judge the reports among the files that a run left: those whose name ends in `.json`."""
    return check_reports({path: _parse(data) for path, data in files.items() if path.endswith(".json")})


def _parse(data: bytes) -> object:
    """Return a report, or None where it is not one JSON text with one meaning."""
    try:
        return strictjson.loads(data, what="the report", max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
    except ManifestError:
        return None


def _provenance(report: Mapping[str, Any]) -> Iterator[Violation]:
    """Who measured, on what, with which flags: without these a figure cannot be repeated."""
    identity = report.get("identity")
    missing = [name for name in _IDENTITY if not isinstance(identity, dict) or not identity.get(name)]
    missing += [name for name in ("created_at", "config") if not report.get(name)]
    if missing:
        yield Violation(code="PROVENANCE_MISSING", message=f"the report does not say: {', '.join(missing)}")


def _rows_are_numbers(report: Mapping[str, Any]) -> Iterator[Violation]:
    rows = report.get("rows")
    if not isinstance(rows, list) or not rows:
        yield Violation(code="NO_ROWS", message="the report holds no measurement")
        return
    for i, row in enumerate(rows):
        bad = [name for name in _ROW_NUMBERS if not _is_measure(row, name)]
        if bad:
            yield Violation(code="BAD_ROW", message=f"row {i} has no usable {', '.join(bad)}")


def _spread_is_possible(report: Mapping[str, Any]) -> Iterator[Violation]:
    """The standard error of a mean of what is never negative is at most that mean: a larger one hides a lie."""
    for i, row in enumerate(_good_rows(report)):
        if row["rel_mse_stderr"] > row["rel_mse"] * (1 + 1e-6) or row["n_vectors"] < 1:
            message = f"row {i}: {row['n_vectors']} errors of mean {row['rel_mse']:.3g} cannot spread so far"
            yield Violation(code="SPREAD_IMPOSSIBLE", message=message)


def _rate_is_possible(report: Mapping[str, Any]) -> Iterator[Violation]:
    """No code stores a Gaussian source at R bits with less error than 2^-2R (Shannon 1959)."""
    for i, row in enumerate(_good_rows(report)):
        if row.get("distribution") != "gaussian":
            continue
        limit = 2.0 ** (-2.0 * row["stored_bits_per_value"])
        if row["rel_mse"] + _SIGMAS * row["rel_mse_stderr"] < limit:
            bits = row["stored_bits_per_value"]
            message = f"row {i} claims {row['rel_mse']:.3g} at {bits:g} bits; {limit:.3g} is the least"
            yield Violation(code="RATE_IMPOSSIBLE", message=message)


def _rate_counts_side_information(report: Mapping[str, Any]) -> Iterator[Violation]:
    """Affine codes keep a scale and a bias a group: bits that are left out make every comparison false."""
    for i, row in enumerate(_good_rows(report)):
        if row.get("codec") != "affine":
            continue
        if not (_is_measure(row, "bits") and _is_measure(row, "group") and row["group"]):
            yield Violation(code="BAD_ROW", message=f"row {i} is affine and has no usable bits and group")
            continue
        least = row["bits"] + 32.0 / row["group"]
        if row["stored_bits_per_value"] < least - 1e-9:
            message = f"row {i} counts {row['stored_bits_per_value']:g} bits; with scale and bias it stores {least:g}"
            yield Violation(code="RATE_OMITS_SIDE_INFORMATION", message=message)


def _limit_is_the_limit(report: Mapping[str, Any]) -> Iterator[Violation]:
    for i, row in enumerate(_good_rows(report)):
        limit = 2.0 ** (-2.0 * row["stored_bits_per_value"])
        if not math.isclose(row["limit"], limit, rel_tol=1e-3):
            yield Violation(
                code="LIMIT_WRONG",
                message=f"row {i} gives {row['limit']:.4g} as the limit; it is {limit:.4g}",
            )


def _good_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = report.get("rows")
    return (
        [row for row in rows if all(_is_measure(row, n) for n in _ROW_NUMBERS)]
        if isinstance(rows, list)
        else []
    )


def _is_measure(row: object, name: str) -> bool:
    value = row.get(name) if isinstance(row, dict) else None
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _HUGE


RULES: dict[str, tuple[Rule, ...]] = {
    CODEC_RD: (
        _provenance,
        _rows_are_numbers,
        _spread_is_possible,
        _rate_is_possible,
        _rate_counts_side_information,
        _limit_is_the_limit,
    ),
}
