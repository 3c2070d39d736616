"""The least that a cache of some name stores, side information and all: what its format takes, to the bit."""

from __future__ import annotations

import math
import re

_AFFINE = re.compile(r"affine@(?P<bits>[2-8])g(?P<group>32|64|128)")
_VORONOI = re.compile(r"e8v@(?P<bits>[2-6])\.25(?::(?:fast|normal|best))?")
_CLASSIC = re.compile(r"(?P<lattice>e8|d4)@q(?P<q>[1-9]\d{0,3})")
_BLOCK = {"e8": (8, 0), "d4": (4, 1)}

# A head so large that what is stored once a vector is nothing: where the size is not known.
LARGEST = 1 << 20


def floor_of(cache: str, dim: int = LARGEST) -> float | None:
    """Return the least bits a value that a cache of this name stores of heads of `dim` values.

    Affine codes keep a scale and a bias of 16 bits a group. A Voronoi row is a 16-bit scale, a bit for each block of
    eight in whole bytes, and `dim` fields: its name says b.25, which is what heads of 128 take. The published
    lattices count the points of their cube and two halves a vector.

    None where the name is that of no codec whose format is known here.
    """
    if affine := _AFFINE.fullmatch(cache):
        return int(affine["bits"]) + 32 / int(affine["group"])
    if voronoi := _VORONOI.fullmatch(cache):
        return int(voronoi["bits"]) + (16 + 8 * math.ceil(dim / 64)) / dim
    if classic := _CLASSIC.fullmatch(cache):
        size, saved = _BLOCK[classic["lattice"]]
        return math.ceil(size * math.log2(2 * int(classic["q"]) + 1) - saved) / size + 32 / dim
    return None
