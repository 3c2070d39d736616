"""Which changes to a report nothing checks: the entries of the table, and how a change is looked up in it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from bridge.evidence.laws.change import Change, Sort


@dataclass(frozen=True)
class Unchecked:
    """One field, or a few that share a reason, and which changes to them pass.

    Attributes:
        fields: places such as ``rows[].decode_s``; a part ``*`` stands for names that the report itself makes up.
        kinds: the kinds of report in which they pass.
        sorts: which sorts of change pass.
        reason: why no law can tell.
        moves: by which factor, less one, a change may move a claim; 0 if no claim depends on the field, infinite if
            nothing bounds it.
        within: by what share of it a number may differ, if small changes pass.
        others: whether they pass only in reports about models that are not bundled.
    """

    fields: tuple[str, ...]
    kinds: tuple[str, ...]
    sorts: tuple[Sort, ...]
    reason: str
    moves: float = 0.0
    within: float = 0.0
    others: bool = False

    def names(self, kind: str, place: str) -> bool:
        """Return whether the entry is about a place in reports of a kind."""
        return kind in self.kinds and any(stands_for(field, place) for field in self.fields)

    def lets_pass(self, change: Change) -> frozenset[Sort]:
        """Return the sorts by which the entry lets a change pass; none if it does not."""
        if change.moved > self.moves or (self.others and change.bundled):
            return frozenset()
        fits = {Sort.ANY, change.sort}
        if change.alike:
            fits.add(Sort.ALIKE)
        if change.sort is Sort.NUMBER and change.size <= self.within:
            fits.add(Sort.SMALL)
        return frozenset(fits & {*self.sorts})

    @property
    def says(self) -> str:
        """What may pass, as text."""
        return ", ".join(
            f"a number that differs by at most {self.within:.0%}" if sort is Sort.SMALL else str(sort.value)
            for sort in self.sorts
        )

    @property
    def is_bounded(self) -> bool:
        """Whether claims depend on the fields, and a law bounds how far a change moves them."""
        return 0 < self.moves < math.inf


def stands_for(field: str, place: str) -> bool:
    """Return whether a field of an entry stands for a place."""
    return re.fullmatch(re.escape(field).replace(r"\*", r"[^.\[\]]+"), place) is not None
