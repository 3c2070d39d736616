"""How values are formatted, the same in every renderer."""

from __future__ import annotations

import math

from bridge import clean
from bridge.report.model import Cell

MAX_CELL = 200

_LARGE, _SMALL, _DIGITS = 1e6, 1e-3, 3
_WHOLE = 1e9


def number(value: float) -> str:
    """Return a number with four digits that count; whole numbers as they are."""
    if isinstance(value, int):
        return str(value)
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if value.is_integer() and abs(value) < _WHOLE:
        return str(int(value))
    if not _SMALL <= abs(value) < _LARGE:
        return f"{value:.2e}"
    places = max(0, _DIGITS - math.floor(math.log10(abs(value))))
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def cell(value: Cell) -> str:
    """Return what a table shows for a value, on one line and of bounded length."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return cut(printable(value)) if isinstance(value, str) else number(value)


def printable(text: str) -> str:
    """Return text in which nothing steers: control characters and marks of direction are spelled out."""
    return clean.line(text.replace("\t", "    "))


def cut(text: str, most: int = MAX_CELL) -> str:
    """Return text of at most `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"


def size(nbytes: float) -> str:
    """Return a number of bytes for people."""
    for unit in ("B", "kB", "MB"):
        if nbytes < 1000:  # noqa: PLR2004 - the units are decimal
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.3g} GB"


def interval(pair: tuple[float, float] | None) -> str:
    """Return an interval."""
    return f"{number(pair[0])} to {number(pair[1])}" if pair else ""


def is_numeric(column: tuple[Cell, ...]) -> bool:
    """Say whether a column of a table holds numbers alone, which stand flush right."""
    found = [value for value in column if value is not None]
    return bool(found) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in found)
