"""Plots as plain data. Any text in them may be untrusted."""

from dataclasses import dataclass, replace
from typing import Literal

# Values above this limit are not drawn.
_MOST = 1e15


@dataclass(frozen=True)
class Point:
    """One value at a position, with the minimum and maximum of the values that it summarizes."""

    at: float
    value: float
    low: float | None = None
    high: float | None = None
    label: str = ""

    @property
    def span(self) -> tuple[float, ...]:
        """The minimum, the value and the maximum, as far as they are known."""
        return tuple(v for v in (self.low, self.value, self.high) if v is not None)


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

    def drawable(self) -> list[Series]:
        """Return the series that have points inside the axes, with only these points."""
        series = (replace(line, points=tuple(filter(self._has, line.points))) for line in self.series)
        return [line for line in series if line.points]

    def _has(self, point: Point) -> bool:
        in_range = all(abs(value) < _MOST for value in (point.at, *point.span))  # not if one is NaN
        return in_range and (not self.log or min(point.span) > 0)
