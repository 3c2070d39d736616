"""Saves rows to disk while they are measured, so that an interrupted run continues where it stopped.

The journal is a file of JSON lines beside the report: a description of the run, then the rows, flushed one by one. It
is removed when the report is written.
"""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bridge.common.whole_files import atomic_write
from engine.errors import BadInput


class Journal:
    """The rows of one run.

    Args:
        out: the report's file; the journal is ``<out>.rows.jsonl``. None keeps the rows in memory only.
        run: everything that determines the measurement. A journal of another run is refused.
        key: the fields that identify a row.
        chosen: options that the run chose by itself, which ``recorded_choices`` returns after an interruption.

    Raises:
        BadInput: there is a journal of another run, or the file cannot be read or written.
    """

    def __init__(
        self,
        out: Path | None,
        run: Mapping[str, Any],
        key: Sequence[str],
        *,
        chosen: Mapping[str, Any] | None = None,
    ) -> None:
        self.key = key
        self._began = time.perf_counter()
        self.path = _beside(out) if out else None
        digest = hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()
        head = {"run": digest, "chosen": dict(chosen or {})}
        self.rows = self._open(self.path, head) if self.path else []  # in the order of measuring
        self._known = {self._key(row) for row in self.rows}
        self.resumed = len(self.rows)  # rows that an earlier, interrupted run left

    def __contains__(self, key: tuple[Any, ...]) -> bool:
        return key in self._known

    def append(self, row: dict[str, Any]) -> None:
        """Save a row. Its start time is relative to the beginning of the run."""
        if "started_s" in row:
            row["started_s"] -= self._began
        self.rows.append(row)
        self._known.add(self._key(row))
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, allow_nan=False) + "\n")

    def close(self) -> None:
        """Remove the file: the rows are in the report now."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _key(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)

    @staticmethod
    def _open(path: Path, head: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the rows of an interrupted run, without what the interruption cut short, and write them again."""
        try:
            lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
            whole = [json.loads(line) for line in lines] or [head]
            if whole[0] != head:
                raise BadInput(f"{path} holds rows of another run", "remove it, or choose another --out")
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as part:
                part.write_text("".join(json.dumps(line) + "\n" for line in whole), encoding="utf-8")
        except (OSError, ValueError) as error:
            raise BadInput(f"{path} cannot be used: {error}", "remove it, or choose another --out") from error
        return whole[1:]


def recorded_choices(out: Path | None) -> dict[str, Any]:
    """Return the options of an interrupted run that would write this report's file; empty without such a run."""
    if out is None:
        return {}
    try:
        with _beside(out).open(encoding="utf-8") as file:
            head = json.loads(file.readline())
    except (OSError, ValueError):
        return {}
    chosen = head.get("chosen") if isinstance(head, dict) else None
    return chosen if isinstance(chosen, dict) else {}


def _beside(out: Path) -> Path:
    return out.with_name(f"{out.name}.rows.jsonl")
