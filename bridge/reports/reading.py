"""Reads a report from bytes: strictly, and bounded by its bytes and its depth."""

from typing import Any

from bridge.common import limits, strict_json
from bridge.common.errors import ManifestError

MAX_DEPTH = 32


class ReportFileError(ManifestError):
    """The bytes are not one JSON object. ``code`` is ``too_large`` or ``bad_json``."""


def parse_report(data: bytes) -> dict[str, Any]:
    """Return a report.

    Equal objects in it are one object in memory: a deep model's rows hold the same layers thousands of times.

    Raises:
        ReportFileError: it cannot be read; the message says why, and where.
    """
    try:
        report = strict_json.loads(
            data, what="the report", max_bytes=limits.REPORT_BYTES, max_depth=MAX_DEPTH, bounds=strict_json.REPORT,
        )  # fmt: skip
    except ManifestError as error:
        raise ReportFileError(error.message, code=error.code) from error
    if not isinstance(report, dict):
        raise ReportFileError("the report is not a JSON object", code="bad_json")
    return report
