"""Runs that were measured, as they are kept in a folder, and what the gate installed here says of each."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bridge import evidence
from bridge.bus.wire import Gate, Violation

Row = dict[str, Any]


@dataclass(frozen=True)
class Kept:
    """A run: what kakeya-engine was told, how it ended, what was said of the same run before, and the report."""

    name: str
    argv: tuple[str, ...]
    exit_code: int
    earlier: tuple[str, ...] = ()
    report: bytes = b""

    @property
    def command(self) -> str:
        """The command without where its report went."""
        return f"kakeya-engine {' '.join(self.argv)}"

    @cached_property
    def gate(self) -> Gate | None:
        """What the gate says; None if there is no report."""
        return evidence.judge({f"{self.name}.json": self.report}) if self.report else None

    @property
    def accepted(self) -> bool:
        """Return whether its claims are results."""
        return self.exit_code == 0 and self.gate is not None and self.gate.verdict == "ACCEPTED"

    @property
    def reasons(self) -> list[Violation]:
        """The first violation of each rule that is broken."""
        found = self.gate.violations if self.gate else []
        return list({fault.code: fault for fault in reversed(found)}.values())[::-1]

    @property
    def said(self) -> str:
        """The verdict, with the rules that are broken."""
        verdict = self.gate.verdict if self.gate else "no report"
        codes = f" ({', '.join(fault.code for fault in self.reasons)})" if self.reasons else ""
        return verdict + codes + (f", exit code {self.exit_code}" if self.exit_code else "")

    @cached_property
    def measured(self) -> Row:
        """The report, of a run that left one."""
        found: Row = json.loads(self.report)
        return found


def report_of(folder: Path, name: str) -> Path:
    """Return where the report of a run lies."""
    return folder / f"{name}.json"


def read(folder: Path, name: str) -> Kept | None:
    """Return a run that is kept in a folder, or None if none is."""
    note, report = note_of(folder, name), report_of(folder, name)
    if not note.exists():
        return None
    told = json.loads(note.read_text(encoding="utf-8"))
    data = report.read_bytes() if report.exists() else b""
    return Kept(name, tuple(told["argv"]), told["exit_code"], tuple(told["earlier"]), data)


def keep(folder: Path, run: Kept) -> None:
    """Write the note on a run; its report lies there already."""
    told = {key: value for key, value in asdict(run).items() if key != "report"}
    note_of(folder, run.name).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def note_of(folder: Path, name: str) -> Path:
    """Return where the note on a run lies."""
    return folder / f"{name}.run"
