"""The JSON reports that the engine writes: one envelope for all kinds.

In a job of a runner, the digests that bind a report to its run are printed while it is measured
(``bridge.reports.digests``).
"""

import datetime as dt
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bridge.common import environment
from bridge.common.whole_files import atomic_write
from bridge.reports import SCHEMA_VERSION, digests
from bridge.reports.claims import derive_claims
from engine.errors import BadInput
from engine.harness import provenance

EVERY_S = 1.0  # the shortest interval between two printed digests of the rows so far


def run_id() -> str | None:
    """Return the id that a runner gave this job; None if no runner started it."""
    value = environment.get(digests.VARIABLE)
    return value if value and digests.RUN_ID.fullmatch(value) else None


class OpenReport:
    """A report that is being measured. Its header is fixed at the beginning; rows are added one by one.

    Args:
        kind: the report's kind, such as ``kakeya.codec-rd``.
        config: every option of the run, so that it can be repeated.
        sections: the kind's other sections: ``models``, ``workloads``, ``prompts``, ``arms``.
    """

    def __init__(self, kind: str, config: Mapping[str, Any], **sections: Any) -> None:
        self._run = run_id()
        self._header = {
            "kind": kind,
            "schema_version": SCHEMA_VERSION,
            "identity": provenance.identity(),
            "config": dict(config),
            **sections,
            **({"run": {"id": self._run}} if self._run else {}),
        }
        self._digest = digests.header_digest(_as_written(self._header))
        self._id = self._digest[: digests.ID_LENGTH]
        self._count, self._printed, self._last = 0, 0, time.monotonic()
        self._print(f"{digests.REPORT} {self._digest}")

    def add(self, row: Mapping[str, Any], *, is_new: bool = True) -> None:
        """Add the digest of a row. ``is_new`` is False for a row of an earlier, interrupted run."""
        (self._digest,) = digests.row_digests([_as_written(row)], self._digest)
        self._count += 1
        if is_new and time.monotonic() - self._last >= EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Print the digest of all rows so far, unless it has been printed."""
        if self._count > self._printed:
            self._print(f"{digests.ROWS} {self._id} {self._count} {self._digest}")
            self._printed, self._last = self._count, time.monotonic()

    def close(self, rows: Sequence[Mapping[str, Any]], seconds: float) -> dict[str, Any]:
        """Return the report with the added rows, in the order in which they ran, and its duration ``seconds``."""
        report = {
            **self._header,
            "created_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "identity": self._header["identity"] | {"load": provenance.load(), "power": provenance.power()},
            "rows": [dict(row) for row in rows],
            "seconds": round(seconds, 3),
        }
        report["claims"] = derive_claims(report)
        self.flush()
        self._print(f"{digests.END} {self._id} {digests.report_digest(_as_written(report))}")
        return report

    def _print(self, line: str) -> None:
        if self._run is not None:
            print(line, file=sys.stderr, flush=True)


def _as_written(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return JSON data as it will be read from the file: tuples become lists, and keys become texts."""
    written: dict[str, Any] = json.loads(_compact(value))
    return written


def write(path: Path, report: Mapping[str, Any]) -> None:
    """Write a report atomically, and create its folder. NaN and infinities are a bug (ValueError)."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            part.write_text(dumps(report), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}", "choose another --out") from error


def dumps(report: Mapping[str, Any]) -> str:
    """Return a report as JSON: a line for each row, prompt, arm and claim, which keeps large reports small."""

    def lines(value: object) -> str:
        if isinstance(value, list) and any(isinstance(item, dict) for item in value):
            return "[\n" + ",\n".join(f"  {_compact(item)}" for item in value) + "\n ]"
        return _compact(value)

    return (
        "{\n" + ",\n".join(f" {_compact(name)}: {lines(value)}" for name, value in report.items()) + "\n}\n"
    )


def _compact(value: object) -> str:
    return json.dumps(value, allow_nan=False)
