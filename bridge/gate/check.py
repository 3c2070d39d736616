"""The definition of a check: one thing that must hold in reports of some kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bridge.gate.index import ReportIndex

Judge = Callable[[ReportIndex], Iterator[str]]


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        code: of its violations; ``bridge.gate.codes`` says why each matters and what to change.
        kinds: the kinds of report that it judges.
        judge: yields a message for each place where a report breaks it.
    """

    code: str
    kinds: tuple[str, ...]
    judge: Judge = field(repr=False)

    @property
    def name(self) -> str:
        """The name of the function: unique within its module."""
        return self.judge.__name__

    @property
    def statement(self) -> str:
        """What must hold, in words."""
        return (self.judge.__doc__ or "").partition("\n")[0]


def check(code: str, *kinds: str) -> Callable[[Judge], Check]:
    """Return a decorator that makes a check of a function. The code is written out, so that a search finds it."""
    return lambda judge: Check(code, kinds, judge)
