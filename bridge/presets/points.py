"""Reads parameters that may list several values, and returns the points of the sweep: each combination of values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from bridge.common import sanitize
from bridge.errors import PresetError
from bridge.presets.model import Preset, split_params
from bridge.presets.params import Value

# The largest number of combinations.
MOST_POINTS = 64
_NAME_CHARS = 120


@dataclass(frozen=True)
class Points:
    """The parameters of each point, without the defaults, and the names of those that differ between the points."""

    params: tuple[Mapping[str, Value], ...]
    swept: tuple[str, ...] = ()


def read_points(preset: Preset, texts: Sequence[str]) -> Points:
    """Read ``NAME=VALUE`` texts, of which each VALUE may list several values.

    A text that is a value of its parameter is that one value. Otherwise commas separate several values, or semicolons
    if there is one: a value may contain commas itself.

    Raises:
        PresetError: a value does not fit or is listed twice, or there are more than ``MOST_POINTS`` combinations.
    """
    listed = {name: _values(preset, name, text) for name, text in split_params(texts, preset.params).items()}
    count = prod(map(len, listed.values()))
    if count > MOST_POINTS:
        sizes = " x ".join(str(len(values)) for values in listed.values() if len(values) > 1)
        message = f"these values make {count} points ({sizes}), and a sweep has at most {MOST_POINTS}"
        raise PresetError(message, fix="List fewer values, or send several sweeps.", code="too_many_points")
    combined = product(*listed.values())
    params = tuple(dict(zip(listed, values, strict=True)) for values in combined)
    return Points(params, tuple(name for name, values in listed.items() if len(values) > 1))


def _values(preset: Preset, name: str, text: str) -> list[Value]:
    try:
        return [*preset.read_params({name: text}).values()]
    except PresetError as error:
        separator = ";" if ";" in text else ","
        if separator not in text or name not in preset.params:
            raise
        whole = error
    parts = [part.strip() for part in text.split(separator)]
    values: list[Value] = []
    for part in parts:
        try:
            (value,) = preset.read_params({name: part}).values()
        except PresetError as error:
            if preset.params[name].type == "cache" and separator == ",":
                # A cache spec has commas, so this was probably meant as one.
                raise whole from None
            message = f"{error.message}, at the point {name}={part}"
            raise PresetError(message, fix=error.fix, code=error.code) from error
        if value in values:
            raise PresetError(f"{preset.name}: {name} lists {part!r} twice", code="usage")
        values.append(value)
    return values


def point_name(params: Mapping[str, object], swept: Sequence[str]) -> str:
    """Return the name of a point: the parameters that differ between the points, such as ``block_size=4 tokens=64``.

    It is one short, printable line: anyone may have written the parameters.
    """
    line = sanitize.line(" ".join(f"{name}={_text(params.get(name))}" for name in swept)) or "no parameters"
    return line if len(line) <= _NAME_CHARS else f"{line[: _NAME_CHARS - 3]}..."


def point_order(params: Mapping[str, object], swept: Sequence[str]) -> tuple[tuple[int, float, str], ...]:
    """Return a key that sorts points by their parameters: numbers by size, texts by the alphabet."""
    values = (params.get(name) for name in swept)
    return tuple(
        (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value)) for value in values
    )


def differing(points: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """Return the names of the parameters that differ between points, in the order in which the points name them."""
    names = dict.fromkeys(name for params in points for name in params)
    # A flag's true is not the number 1.
    return tuple(name for name in names if len({repr(params.get(name)) for params in points}) > 1)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
