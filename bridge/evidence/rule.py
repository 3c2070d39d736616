"""The definition of a rule: a check of a report, with the code of its violations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Check = Callable[[Any], Iterator[str]]


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        code: the code of every violation that it finds; docs/evidence.md says what each code means.
        check: yields a message for each place where a report breaks the rule.
    """

    code: str
    check: Check = field(repr=False)

    def __call__(self, report: Any) -> Iterator[str]:
        """Yield a message for each place where a report breaks the rule."""
        yield from self.check(report)

    @property
    def name(self) -> str:
        """The name of the check: unique within its module."""
        return str(getattr(self.check, "__name__", ""))

    @property
    def statement(self) -> str:
        """What must hold, in words."""
        return (self.check.__doc__ or "").partition("\n")[0]


def rule(code: str) -> Callable[[Check], Rule]:
    """Return a decorator that makes a rule of a check. The code is written out here, so that a search finds it."""
    return lambda check: Rule(code, check)
