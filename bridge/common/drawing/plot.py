"""Plots as plain data. Any text in them may be untrusted."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Point:
    """One value at a position, with the minimum and maximum of the values that it summarizes."""

    at: float
    value: float
    low: float | None = None
    high: float | None = None
    label: str = ""


@dataclass(frozen=True)
class Series:
    """A series of points. A ``limit`` is drawn as a line without marks, behind all others."""

    name: str
    points: tuple[Point, ...]
    style: Literal["line", "marks", "limit"] = "marks"


@dataclass(frozen=True)
class Plot:
    """A plot of values against a number. With ``categories``, each has its own line, and ``Point.at`` is its index."""

    title: str
    at: str
    value: str
    series: tuple[Series, ...]
    log: bool = False
    categories: tuple[str, ...] = ()
    note: str = ""
