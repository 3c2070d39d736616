"""Prints the digests that bind a report to its run, while it is measured: see :mod:``bridge.reports.digests``."""

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from bridge.common import environment
from bridge.reports import digests

EVERY_S = 1.0


def run_id() -> str | None:
    """Return the id that a runner gave this job; None if no runner started it."""
    value = environment.get(digests.VARIABLE)
    return value if value and digests.RUN_ID.fullmatch(value) else None


class DigestLog:
    """The digests of one report, from its header over its rows to the whole. Prints only in a job that has a run id.

    Args:
        header: the report as far as it is known before its first row.
    """

    def __init__(self, header: Mapping[str, Any]) -> None:
        self.digest = digests.header_digest(_as_written(header))
        self._id = self.digest[: digests.ID_LENGTH]
        self._count, self._printed, self._last = 0, 0, time.monotonic()
        self._print(f"{digests.REPORT} {self.digest}")

    def add(self, row: Mapping[str, Any], *, is_new: bool = True) -> None:
        """Add a measured row. At most once a second, its digest is printed; never that of an earlier run's row."""
        (self.digest,) = digests.row_digests([_as_written(row)], self.digest)
        self._count += 1
        if is_new and time.monotonic() - self._last >= EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Print the digest of all rows so far, unless it has been printed."""
        if self._count > self._printed:
            self._print(f"{digests.ROWS} {self._id} {self._count} {self.digest}")
            self._printed, self._last = self._count, time.monotonic()

    def close(self, report: Mapping[str, Any]) -> None:
        """Print the digest of the whole report."""
        self.flush()
        self._print(f"{digests.END} {self._id} {digests.report_digest(_as_written(report))}")

    @staticmethod
    def _print(line: str) -> None:
        if run_id() is not None:
            print(line, file=sys.stderr, flush=True)


def _as_written(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return JSON as a reader of the file will have it: tuples are lists, and names are texts."""
    written: dict[str, Any] = json.loads(json.dumps(value, allow_nan=False))
    return written
