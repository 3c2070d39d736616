"""Laws: named relations between the fields of a report, by kind of report.

A rule checks one part of a report. A law checks whether several parts can be true of one run. The gate applies both
(``bridge.evidence.rules``), docs/evidence.md lists them, and tests/bridge/evidence/tell.py falsifies their fields.
"""

from __future__ import annotations

from types import ModuleType

from bridge.evidence.laws import (
    answers,
    cells,
    closed,
    codecs,
    configured,
    counted,
    coverage,
    fields,
    halves,
    identity,
    lookups,
    loops,
    meaning,
    needles,
    older,
    pace,
    package,
    passes,
    plain,
    predictions,
    quality,
    relative,
    repeats,
    rooms,
    rounds,
    served,
    stored,
    text,
    time,
    turns,
    vocabulary,
)
from bridge.evidence.laws.law import Law

GROUPS: dict[str, tuple[ModuleType, ...]] = {
    "Time": (time, repeats, turns, pace, passes),
    "Rounds": (rounds, loops, lookups, package),
    "Coverage and baselines": (coverage, configured, needles),
    "Bytes": (stored, counted, rooms),
    "Text": (text, vocabulary, answers),
    "Quality": (quality, codecs, halves, predictions, relative),
    "Cells of the server": (cells, served),
    "Identity": (identity, plain),
    "Meaning": (meaning, fields, closed),
    "Reports of schema 2": (older,),
}

BY_GROUP: dict[str, tuple[Law, ...]] = {
    name: tuple(found for module in modules for found in vars(module).values() if isinstance(found, Law))
    for name, modules in GROUPS.items()
}
LAWS: tuple[Law, ...] = tuple(one for group in BY_GROUP.values() for one in group)


def laws_of(kind: str) -> tuple[Law, ...]:
    """Return the laws for a kind of report."""
    return tuple(one for one in LAWS if kind in one.kinds)


__all__ = ["BY_GROUP", "LAWS", "Law", "laws_of"]
