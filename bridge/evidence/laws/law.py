"""What a law is: an identity or an inequality between fields of a report, with a name, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bridge.evidence.rule import Check, Rule

SPEC = ("kakeya.spec-bench", "kakeya.acceptance")
NATIVE = ("kakeya.native",)
TIMED = (*SPEC, *NATIVE)
FOUND = ("kakeya.recall", "kakeya.restored-prefill")
DECODED = (*TIMED, *FOUND)
QUANT, PARITY = ("kakeya.kv-quant",), ("kakeya.parity",)
SWEEP, CODEC = ("kakeya.verify-l",), ("kakeya.codec-rd",)
PROMPTED = (*DECODED, *QUANT, *PARITY)
MODELLED = (*PROMPTED, *SWEEP)
ALL = (*MODELLED, *CODEC)


@dataclass(frozen=True)
class Law(Rule):
    """One law: a rule that ties fields to one another.

    Attributes:
        kinds: the kinds of report that it holds for.
        fields: the fields that it ties to one another, by their place in a report.
        says: what holds, in words.
    """

    kinds: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    says: str = ""

    @property
    def statement(self) -> str:
        """What must hold, in words."""
        return self.says


def law(code: str, kinds: tuple[str, ...], fields: str, statement: str) -> Callable[[Check], Law]:
    """Return a decorator that makes a law of a check. `fields` are separated by blanks."""
    return lambda check: Law(code, check, kinds, tuple(fields.split()), statement)
