"""Lenient access to the values of reports: rejected reports are shown too, as far as they make sense."""

import json
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from bridge.common.drawing.plot import Point, Series
from bridge.common.drawing.text import Cell, cut
from bridge.common.drawing.text import number as shown
from bridge.reports import statistics

Row = Mapping[str, Any]

_HUGE = 1e15
_MAX_NESTED = 80


def number(value: object) -> float | None:
    """Return a finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and abs(value) < _HUGE else None


def text(value: object) -> str:
    """Return a text, or an empty one if the value is not a text."""
    return value if isinstance(value, str) else ""


def mapping(value: object) -> Row:
    """Return a JSON object, or an empty one if the value is not an object."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Row]:
    """Return the objects in a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def numbers(value: object) -> list[float]:
    """Return the numbers in a list."""
    candidates = map(number, value) if isinstance(value, list) else iter(())
    return [item for item in candidates if item is not None]


def plain(value: object) -> Cell:
    """Return a table cell for any JSON value: nested values are shown as JSON and cut."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return cut(json.dumps(value, ensure_ascii=False), _MAX_NESTED)


def median(values: Iterable[float]) -> float | None:
    """Return the median, or None without values."""
    numbers = list(values)
    return statistics.median(numbers) if numbers else None


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[str, ...], list[Row]]:
    """Group rows by some of their text fields, in order of first appearance."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row.get(name, "")) for name in names), []).append(row)
    return groups


def spread(at: float, values: Collection[float], name: str, unit: str = "") -> Point:
    """Return the median of values as a point, with the least and the greatest value."""
    middle, low, high = statistics.median(values), min(values), max(values)
    label = f"{name}: {shown(middle)}{unit} ({shown(low)} to {shown(high)})"
    return Point(at, middle, low, high, label)


def lines(points: Mapping[str, Iterable[Point]]) -> tuple[Series, ...]:
    """Return a line for each name, through its points in order."""
    return tuple(
        Series(name, tuple(sorted(some, key=lambda p: p.at)), "line") for name, some in points.items()
    )
