"""Runs that were measured, as they are kept in a folder, and what the gate installed here says about each."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from bridge import gate
from bridge.bus.wire import Gate, Violation
from bridge.verify.public_keys import Pin, find_pin
from bridge.verify.run_file import SUFFIX, voucher_for

Row = dict[str, Any]
ROOT = Path(__file__).parents[1]
# The key whose runs count: a reader of this repository has it on the main branch.
KEY = ROOT / "docs" / "results" / "runner.pub"
# The verdicts of earlier measurements of the same run, by its name.
EARLIER = "earlier.yaml"


@dataclass(frozen=True)
class Kept:
    """A measurement: its command, its report, the run that vouches for it, and the verdicts of earlier measurements."""

    name: str
    argv: tuple[str, ...]
    report: bytes = b""
    run: gate.Voucher = field(default=gate.NO_RUN, repr=False)
    earlier: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command without where its report went."""
        return f"kakeya-engine {' '.join(self.argv)}"

    @cached_property
    def gate(self) -> Gate | None:
        """What the gate says; None if there is no report."""
        return gate.judge({f"{self.name}.json": self.report}, run=self.run) if self.report else None

    @property
    def accepted(self) -> bool:
        """Return whether its claims are results."""
        return self.gate is not None and self.gate.verdict == "ACCEPTED"

    @property
    def reasons(self) -> list[Violation]:
        """The first violation of each code."""
        violations = self.gate.violations if self.gate else []
        return list({fault.code: fault for fault in reversed(violations)}.values())[::-1]

    @property
    def said(self) -> str:
        """The verdict, with the codes of the violations."""
        verdict = self.gate.verdict if self.gate else "no report"
        codes = f" ({', '.join(fault.code for fault in self.reasons)})" if self.reasons else ""
        return verdict + codes

    @cached_property
    def measured(self) -> Row:
        """The report, of a run that left one."""
        report: Row = json.loads(self.report)
        return report


def report_of(folder: Path, name: str) -> Path:
    """Return where the report of a run lies."""
    return folder / f"{name}.json"


def run_of(folder: Path, name: str) -> Path:
    """Return where the run file of a report lies."""
    return report_of(folder, name).with_suffix(SUFFIX)


def read(folder: Path, name: str, argv: tuple[str, ...], pin: Pin | None = None) -> Kept | None:
    """Return a measurement that is kept in a folder, or None if it is not there."""
    report = report_of(folder, name)
    if not report.exists():
        return None
    data = report.read_bytes()
    voucher = voucher_for(report, data, pin or find_pin(None, "", KEY))
    return Kept(name, argv, data, voucher, tuple(earlier_of(folder).get(name, ())))


def earlier_of(folder: Path) -> dict[str, list[str]]:
    """Return the verdicts of earlier measurements, by name."""
    file = folder / EARLIER
    return dict(yaml.safe_load(file.read_text(encoding="utf-8")) or {}) if file.exists() else {}


def remember(folder: Path, name: str, verdict: str) -> None:
    """Write down the verdict of a measurement that is about to be replaced."""
    verdicts = earlier_of(folder)
    verdicts.setdefault(name, []).append(verdict)
    (folder / EARLIER).write_text(yaml.safe_dump(verdicts), encoding="utf-8")
