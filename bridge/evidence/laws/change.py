"""A change to a field of a report, by its sort and by how far it moves the report's claims."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

# Two numbers that differ by no more than this are one, computed in another order.
DIGITS = 1e-9


class Sort(StrEnum):
    """What is done to a value. An entry of the table of unchecked fields names which of these may pass."""

    NUMBER = "another number"
    SMALL = "a number that differs by little"
    TEXT = "another text"
    FLAG = "the opposite"
    SWAP = "the value of another item"
    ORDER = "another order"
    COUNT = "items left out or repeated"
    ABSENT = "no value"
    ALIKE = "the same change in all items"
    ANY = "any"


@dataclass(frozen=True)
class Change:
    """One change, as far as the table of unchecked fields asks for it.

    Attributes:
        sort: what was done to the value, or to each of several.
        alike: whether it was done to all items of the report, and there are several.
        size: how far a number moved, as a share of the old one; infinite for other values.
        moved: by which factor, less one, the change moves a claim at most; 0 if it moves none.
        bundled: whether the report is about models that come with the engine: the gate knows more of them.
    """

    sort: Sort
    alike: bool = False
    size: float = math.inf
    moved: float = 0.0
    bundled: bool = False


def apart(old: object, new: object) -> float:
    """Return by which factor, less one, two numbers differ; infinite if one of them is no number or zero."""
    if old == new:
        return 0.0
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in (old, new)):
        return math.inf
    low, high = sorted((abs(float(old)), abs(float(new))))  # type: ignore[arg-type]
    if not low or (old > 0) != (new > 0):  # type: ignore[operator]
        return math.inf
    return high / low - 1 if high / low - 1 > DIGITS else 0.0


def moved(old: Mapping[object, object], new: Mapping[object, object]) -> float:
    """Return how far figures moved that both of two reports have."""
    return max((apart(old[name], new[name]) for name in old if name in new), default=0.0)
