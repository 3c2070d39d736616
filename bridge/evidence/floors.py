"""The exact minimum storage of each cache format in bits per value, including side information."""

from __future__ import annotations

import math
import re

_AFFINE = re.compile(r"affine@(?P<bits>[2-8])g(?P<group>32|64|128)")
_VORONOI = re.compile(r"e8v@(?P<bits>[2-6])\.25(?::(?:fast|normal|best))?")
_CLASSIC = re.compile(r"(?P<lattice>e8|d4)@q(?P<q>[1-9]\d{0,3})")
_BLOCK = {"e8": (8, 0), "d4": (4, 1)}

# Assumed head size if it is unknown: so large that per-vector side information is negligible.
LARGEST = 1 << 20


def floor_of(cache: str, dim: int = LARGEST) -> float | None:
    """Return the minimum bits per value of a cache with this name, for heads of ``dim`` values.

    Affine codes store a scale and a bias of 16 bits each per group. A Voronoi row has a 16-bit scale, one bit per
    block of eight, rounded up to bytes, and ``dim`` fields; b.25 in its name is the total for heads of 128. For the
    published lattices, count the points of their cube, and two half-precision numbers per vector.

    None if the format of the named codec is not known here.
    """
    if affine := _AFFINE.fullmatch(cache):
        return int(affine["bits"]) + 32 / int(affine["group"])
    if voronoi := _VORONOI.fullmatch(cache):
        return int(voronoi["bits"]) + (16 + 8 * math.ceil(dim / 64)) / dim
    if classic := _CLASSIC.fullmatch(cache):
        size, saved = _BLOCK[classic["lattice"]]
        return math.ceil(size * math.log2(2 * int(classic["q"]) + 1) - saved) / size + 32 / dim
    return None
