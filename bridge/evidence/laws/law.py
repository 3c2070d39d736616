"""What a law is: an identity or an inequality between fields of a report, with a name, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Check = Callable[[Any], Iterator[str]]

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
class Law:
    """One law.

    Attributes:
        name: its name, unique.
        code: the code that a report which breaks it is given.
        kinds: the kinds of report that it holds for.
        fields: the fields that it ties to one another, by their place in a report.
        statement: what holds, in words.
        check: yields a message for each place where a report breaks it.
    """

    name: str
    code: str
    kinds: tuple[str, ...]
    fields: tuple[str, ...]
    statement: str
    check: Check = field(repr=False)

    def __call__(self, report: Any) -> Iterator[str]:
        """Yield a message for each place where a report breaks the law."""
        yield from self.check(report)

    @property
    def __name__(self) -> str:
        return self.name


def law(code: str, kinds: tuple[str, ...], fields: str, statement: str) -> Callable[[Check], Law]:
    """Return a decorator that makes a law of a check. `fields` are separated by blanks."""

    def make(check: Check) -> Law:
        return Law(str(getattr(check, "__name__", "")), code, kinds, tuple(fields.split()), statement, check)

    return make
