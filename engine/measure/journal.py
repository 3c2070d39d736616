"""Saves rows to disk while they are measured, so that an interrupted run continues where it stopped.

JSON lines beside the report: what the run is, then one row each, flushed as they come. The file goes when the
report is written.
"""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.errors import BadInput


class Journal:
    """The rows of one run.

    Args:
        out: the report's file; the journal is ``<out>.rows.jsonl``. None keeps the rows in memory only.
        run: everything that decides what is measured. A journal of another run is refused.
        key: the fields by which a row is known.

    Attributes:
        rows: so far, in the order in which they were measured.
        resumed: how many of them an earlier, interrupted run left.

    Raises:
        BadInput: a journal of another run lies there, or it cannot be read or written.
    """

    def __init__(self, out: Path | None, run: Mapping[str, Any], key: Sequence[str]) -> None:
        self.key = tuple(key)
        self.rows: list[dict[str, Any]] = []
        self._known: set[tuple[Any, ...]] = set()
        self.resumed = 0
        self._began = time.perf_counter()
        self.path = out.with_name(f"{out.name}.rows.jsonl") if out else None
        digest = hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()
        if self.path is not None:
            self._open(self.path, {"run": digest})

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

    def _open(self, path: Path, head: dict[str, str]) -> None:
        try:
            lines = path.read_bytes().split(b"\n") if path.is_file() else []
            whole = [
                json.loads(line) for line in lines[:-1]
            ]  # what an interruption cut short is behind the last
            if whole and whole[0] != head:
                raise BadInput(f"{path} holds rows of another run", "remove it, or choose another --out")
            path.parent.mkdir(parents=True, exist_ok=True)
            text = "".join(json.dumps(line) + "\n" for line in whole or [head])
            path.write_text(text, encoding="utf-8")
        except (OSError, ValueError) as error:
            raise BadInput(f"{path} cannot be used: {error}", "remove it, or choose another --out") from error
        self.rows = whole[1:]
        self._known = {self._key(row) for row in self.rows}
        self.resumed = len(self.rows)
