"""One violation code of the gate, as an entry of the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Entry:
    """One thing that can be wrong.

    ``missing``: something is absent. ``noise``: other work on the machine can cause it in an honest run. All other
    violations mean that something in the report is wrong.
    """

    code: str
    why: str
    mend: str
    missing: bool = False
    noise: bool = False

    @property
    def verdict(self) -> Literal["REJECTED", "INCOMPLETE"]:
        """What a report comes to of which nothing else is said."""
        return "INCOMPLETE" if self.missing or self.noise else "REJECTED"


def wrong(code: str, why: str, mend: str) -> Entry:
    """Return the entry of something that is there and does not hold."""
    return Entry(code, why, mend)


def missing(code: str, why: str, mend: str) -> Entry:
    """Return the entry of something that is not there."""
    return Entry(code, why, mend, missing=True)


def noise(code: str, why: str, mend: str = "measure again when the machine is idle") -> Entry:
    """Return the entry of what a busy machine does to an honest run."""
    return Entry(code, why, mend, noise=True)
