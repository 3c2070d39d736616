"""Formats values in the same way for every renderer."""

import math

from bridge.common import sanitize

Cell = str | float | int | bool | None

MAX_CELL = 200

_LARGE, _SMALL, _DIGITS = 1e6, 1e-3, 3
_WHOLE = 1e9


def number(value: float) -> str:
    """Return a number with four significant digits; integers unchanged."""
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
    """Return a value for a table cell, on one line and of bounded length."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return cut(printable(value)) if isinstance(value, str) else number(value)


def printable(text: str) -> str:
    """Return text with control characters and direction marks replaced by visible escapes."""
    return sanitize.line(text.replace("\t", "    "))


def cut(text: str, most: int = MAX_CELL) -> str:
    """Return text of at most ``most`` characters."""
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
    """Return whether a table column contains only numbers, which are right-aligned."""
    cells = [value for value in column if value is not None]
    return bool(cells) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in cells)
