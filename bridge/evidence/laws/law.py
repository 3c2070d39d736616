"""The definition of a law: a named equation or inequality between fields of a report, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bridge.evidence.rule import Check, Rule

SPEC = ("kakeya.spec-bench", "kakeya.acceptance")
NATIVE = ("kakeya.native",)
TIMED = (*SPEC, *NATIVE)
RESTORED = ("kakeya.restored-prefill",)
FOUND = ("kakeya.recall", *RESTORED)
DECODED = (*TIMED, *FOUND)
QUANT, PARITY = ("kakeya.kv-quant",), ("kakeya.parity",)
SWEEP, CODEC = ("kakeya.verify-l",), ("kakeya.codec-rd",)
SERVED = ("kakeya.serve-conformance",)
PROMPTED = (*DECODED, *QUANT, *PARITY)
MODELLED = (*PROMPTED, *SWEEP, *SERVED)
ALL = (*MODELLED, *CODEC)


@dataclass(frozen=True)
class Law(Rule):
    """One law: a rule about the relation between fields.

    Attributes:
        kinds: the kinds of report to which it applies.
        fields: the related fields, by their path in a report.
        says: what must hold, as text.
    """

    kinds: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    says: str = ""

    @property
    def statement(self) -> str:
        """What must hold, as text."""
        return self.says


def law(code: str, kinds: tuple[str, ...], fields: str, statement: str) -> Callable[[Check], Law]:
    """Return a decorator that turns a check into a law. ``fields`` are separated by spaces."""
    return lambda check: Law(code, check, kinds, tuple(fields.split()), statement)
