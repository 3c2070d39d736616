"""Cache specs: how keys and values are stored. One grammar for options, presets, channels and reports.

- ``raw``: as the model computes them
- ``e8v@4.25``: packed Voronoi codes; 2.25, 3.25, 4.25, 5.25 or 6.25 bits; ``:fast`` or ``:best`` may follow
- ``e8@q38``, ``d4@q10``: the published codec's round trip; stores the model's type, saves nothing
- ``affine@4g64``: mlx-lm's quantized cache, 4 bits in groups of 64
- ``k=e8v@4.25,v=e8v@3.25``: keys and values stored in different ways

Two texts may name one cache: ``e8v@4.25:normal`` is ``e8v@4.25``, and so is ``k=e8v@4.25,v=e8v@4.25``. A parsed spec
has the shortest text, which options, caches and reports use.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from bridge.common.errors import UsageError


class Form(NamedTuple):
    """The form of the specs of one family."""

    pattern: re.Pattern[str]  # matches a whole spec; its named groups become `CacheSpec.fields`
    help: str  # the same in words
    packs: bool = True  # whether keys or values alone can be stored in it


FORMS: dict[str, Form] = {
    "raw": Form(re.compile(r"raw"), "raw"),
    "e8v": Form(
        re.compile(r"e8v@(?P<bits>[2-6]\.25)(?::(?P<effort>fast|normal|best))?"),
        "e8v@ with 2.25, 3.25, 4.25, 5.25 or 6.25 bits (:fast or :best may follow)",
    ),
    "classic": Form(
        re.compile(r"(?P<lattice>e8|d4)@q(?P<q_range>[1-9][0-9]{0,3})"),
        "e8@q or d4@q with a number from 1 to 9999, such as e8@q38",
        packs=False,
    ),
    "affine": Form(
        re.compile(r"affine@(?P<bits>[234568])g(?P<group>32|64|128)"),
        "affine@ with 2, 3, 4, 5, 6 or 8 bits and groups of 32, 64 or 128, such as affine@4g64",
    ),
}
SPLIT = "split"
# The family whose caches hold packed codes also if a spec names it for keys and values together.
_PACKED = "e8v"
_DEFAULT_EFFORT = ":normal"
_SPLIT = re.compile(r"k=(?P<keys>[^,=]+),v=(?P<values>[^,=]+)")


@dataclass(frozen=True)
class CacheSpec:
    """A parsed spec."""

    text: str  # the shortest one for this cache
    family: str  # a key of `FORMS`, or `split` if keys and values are stored in different ways
    # The numbers and words in the text, by name.
    fields: Mapping[str, str] = field(default_factory=dict, compare=False)
    _sides: "tuple[CacheSpec, ...]" = ()

    @property
    def sides(self) -> "tuple[CacheSpec, CacheSpec]":
        """The specs of keys and of values. Both are this spec unless it is ``split``."""
        keys, values = self._sides or (self, self)
        return keys, values

    @property
    def kind(self) -> str:
        """The kind, for comparisons: ``e8v``, ``affine``, ``e8``, ``d4``; ``k=e8v,v=affine`` if the sides differ."""
        keys, values = (side.text.split("@", maxsplit=1)[0] for side in self.sides)
        return keys if keys == values else f"k={keys},v={values}"

    @property
    def packs(self) -> bool:
        """Whether the counted bytes are stored: False for the published codec, whose cache holds decoded values."""
        return all(FORMS[side.family].packs for side in self.sides)


def help_text() -> str:
    """Return a text that lists the valid specs."""
    split = "k=...,v=... with any of these but e8@q and d4@q for each, such as k=e8v@4.25,v=e8v@3.25"
    return "; ".join([*(form.help for form in FORMS.values()), split])


def parse(text: str) -> CacheSpec:
    """Parse a spec.

    Raises:
        UsageError: the text is not a spec, or names a cache that cannot store keys or values alone.
    """
    if match := _SPLIT.fullmatch(text):
        sides = tuple(_whole(match[name], text) for name in ("keys", "values"))
        if {side.family for side in sides} == {"raw"}:
            raise UsageError(f"no cache spec {text!r}: nothing in it is packed", fix="write raw")
        for side in sides:
            if not side.packs:
                raise UsageError(
                    f"no cache spec {text!r}: {side.text} stores keys and values as they come back, not codes",
                    fix="take raw, e8v@... or affine@... for each",
                )
        keys, values = sides
        # Both forms make the same cache only if the family's own cache is a packed one.
        if keys.text == values.text and keys.family == _PACKED:
            return keys
        return CacheSpec(f"k={keys.text},v={values.text}", SPLIT, _sides=sides)
    return _whole(text, text)


def canonical(text: str) -> str:
    """Return the shortest spec of the same cache; a text that is not a spec is returned unchanged."""
    try:
        return parse(text).text
    except UsageError:
        return text


def _whole(part: str, text: str) -> CacheSpec:
    for family, form in FORMS.items():
        if match := form.pattern.fullmatch(part):
            fields = {name: value for name, value in match.groupdict().items() if value}
            return CacheSpec(part.removesuffix(_DEFAULT_EFFORT), family, fields)
    raise UsageError(f"no cache spec {text!r}", fix=f"the specs are {help_text()}")


def split_list(text: str) -> list[str]:
    """Split a list at its commas, but not at the one inside ``k=...,v=...``; empty items are left out."""
    return [item.strip() for item in re.split(r",(?!\s*v=)", text) if item.strip()]
