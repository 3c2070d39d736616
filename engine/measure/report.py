"""The JSON reports that the engine writes: one envelope for all kinds."""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bridge.common.whole_files import written_whole
from bridge.reports import SCHEMA_VERSION
from bridge.reports.claims import derive_claims
from engine.errors import BadInput
from engine.measure import provenance
from engine.measure.chain import DigestLog, run_id


class OpenReport:
    """A report that is being measured. Its header is fixed now, and its rows are added as they are measured.

    In a job of a runner, the digests of header and rows are printed (:mod:``bridge.reports.digests``).

    Args:
        kind: the report's kind, such as ``kakeya.codec-rd``.
        config: every option of the run, so that it can be repeated.
        sections: what else the kind has: ``models``, ``workloads``, ``prompts``, ``arms``.
    """

    def __init__(self, kind: str, config: Mapping[str, Any], **sections: Any) -> None:
        run = run_id()
        self._header = {
            "kind": kind,
            "schema_version": SCHEMA_VERSION,
            "identity": provenance.identity(),
            "config": dict(config),
            **sections,
            **({"run": {"id": run}} if run else {}),
        }
        self._log = DigestLog(self._header)

    def add(self, row: Mapping[str, Any], *, is_new: bool = True) -> None:
        """Add the digest of a row. ``is_new`` is False for a row that an earlier, interrupted run left."""
        self._log.add(row, is_new=is_new)

    def flush(self) -> None:
        """Print the digest of the rows so far, for rows that began together."""
        self._log.flush()

    def close(self, rows: Sequence[Mapping[str, Any]], seconds: float) -> dict[str, Any]:
        """Return the whole report.

        Args:
            rows: the measurements that were added, in the order in which they ran.
            seconds: wall-clock time of the whole run.
        """
        machine = self._header["identity"] | {"load": provenance.load(), "power": provenance.power()}
        report = {
            **self._header,
            "created_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "identity": machine,
            "rows": [dict(row) for row in rows],
            "seconds": round(seconds, 3),
        }
        report["claims"] = derive_claims(report)
        self._log.close(report)
        return report


def write(path: Path, report: Mapping[str, Any]) -> None:
    """Write a report whole or not at all; its folder is made. NaN and infinities are a bug (ValueError)."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as part:
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
