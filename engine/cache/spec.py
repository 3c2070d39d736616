"""Cache specs: what to hold keys and values in.

- ``raw``: as the model makes them
- ``e8v@4.25``: packed Voronoi codes; 2.25, 3.25, 4.25, 5.25 or 6.25 bits; ``:fast`` or ``:best`` may follow
- ``e8@q38``, ``d4@q10``: the published codec's round trip; stores the model's type, saves nothing
- ``affine@4g64``: mlx-lm's quantized cache, 4 bits in groups of 64
"""

import re
from dataclasses import dataclass

from engine.errors import BadInput

_FORMS = {
    "raw": re.compile(r"raw"),
    "e8v": re.compile(r"e8v@(?P<bits>[2-6]\.25)(?::(?P<effort>fast|normal|best))?"),
    "classic": re.compile(r"(?P<lattice>e8|d4)@q(?P<q_range>[1-9][0-9]{0,3})"),
    "affine": re.compile(r"affine@(?P<bits>[234568])g(?P<group>32|64|128)"),
}

VALID = (
    "raw; e8v@ with 2.25, 3.25, 4.25, 5.25 or 6.25 bits (:fast or :best may follow); e8@q or d4@q with a number from 1 "
    "to 9999, such as e8@q38; affine@ with 2, 3, 4, 5, 6 or 8 bits and groups of 32, 64 or 128, such as affine@4g64"
)


@dataclass(frozen=True)
class Spec:
    """A parsed spec: its text, family (``raw``, ``e8v``, ``classic``, ``affine``) and its numbers."""

    text: str
    family: str
    bits: float = 0
    effort: str = "normal"
    lattice: str = ""
    q_range: int = 0
    group: int = 0


def parse(text: str) -> Spec:
    """Return the spec that ``text`` writes.

    Raises:
        BadInput: it is none.
    """
    for family, form in _FORMS.items():
        if match := form.fullmatch(text):
            fields = {name: value for name, value in match.groupdict().items() if value}
            return Spec(
                text,
                family,
                bits=float(fields.get("bits", 0)),
                effort=fields.get("effort", "normal"),
                lattice=fields.get("lattice", ""),
                q_range=int(fields.get("q_range", 0)),
                group=int(fields.get("group", 0)),
            )
    raise BadInput(f"no cache spec {text!r}", f"the specs are {VALID}")
