"""The model of a run: what ties the fields of a report to one another, as named laws, by kind of report.

Rules look at what a report says; laws look at whether all of it could be true of one run. The gate holds a report to
both (`bridge.evidence.rules`), docs/evidence.md lists them, and the machine that lies
(tests/bridge/evidence/mutations.py) changes their fields.
"""

from __future__ import annotations

from types import ModuleType

from bridge.evidence.laws import coverage, identity, meaning, older, quality, rounds, stored, text, time
from bridge.evidence.laws.law import Law

GROUPS: dict[str, ModuleType] = {
    "Time": time,
    "Rounds": rounds,
    "Coverage and baselines": coverage,
    "Bytes": stored,
    "Text": text,
    "Quality": quality,
    "Identity": identity,
    "Meaning": meaning,
    "Reports of schema 2": older,
}

BY_GROUP: dict[str, tuple[Law, ...]] = {
    name: tuple(found for found in vars(module).values() if isinstance(found, Law))
    for name, module in GROUPS.items()
}
LAWS: tuple[Law, ...] = tuple(one for group in BY_GROUP.values() for one in group)


def laws_of(kind: str) -> tuple[Law, ...]:
    """Return the laws that reports of a kind are held to."""
    return tuple(one for one in LAWS if kind in one.kinds)


__all__ = ["BY_GROUP", "LAWS", "Law", "laws_of"]
