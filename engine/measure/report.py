"""The JSON reports that the engine writes: one envelope for all kinds."""

import datetime as dt
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.errors import BadInput
from engine.measure import chain
from engine.measure.identity import identity

SCHEMA_VERSION = 3


def envelope(
    kind: str,
    *,
    config: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    seconds: float,
    claims: Sequence[Mapping[str, Any]] = (),
    **sections: Any,
) -> dict[str, Any]:
    """Return a report: who measured (``identity``), with what (``config``), what came out (``rows``).

    Args:
        kind: the report's kind, such as ``kakeya.codec-rd``.
        config: every option of the run, so that it can be repeated.
        rows: the measurements, in the order in which they ran.
        seconds: wall-clock time of the whole run.
        claims: statistics of the rows by name, which the evidence gate takes again.
        sections: what else the kind has: ``models``, ``workloads``, ``prompts``, ``arms``.
    """
    now = dt.datetime.now(dt.UTC)
    return {
        "kind": kind,
        "schema_version": SCHEMA_VERSION,
        "created_at": now.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "identity": identity(),
        "config": dict(config),
        **sections,
        "rows": [dict(row) for row in rows],
        "claims": [dict(claim) for claim in claims],
        "seconds": round(seconds, 3),
        **_run(rows),
    }


def _run(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the section that names the run, where a runner gave it an id, and print the digest of its rows."""
    chain.tell_all(rows)
    told = chain.run_id()
    return {"run": {"id": told}} if told else {}


def write(path: Path, report: Mapping[str, Any]) -> None:
    """Write a report whole or not at all; its folder is made. NaN and infinities are a bug (ValueError)."""
    text = json.dumps(report, indent=2, allow_nan=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).chmod(0o644)
            Path(name).replace(path)
        finally:
            # Gone after the replacement; left where the disk is full.
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}", "choose another --out") from error
