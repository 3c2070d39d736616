"""Reads what ``engine.codec.classic_store`` writes."""

import math

import numpy as np

from engine.codec.classic import ClassicCodec
from engine.codec.spec import BLOCK_SIZES
from engine.mx import mx

FOUR = 4
SIDE_BYTES = 4  # norm and maximum, a half each


def base(codec: ClassicCodec) -> int:
    """Return how many values a coordinate has."""
    return 2 * codec.q_range + (2 if codec.lattice == "e8" else 1)


def width(codec: ClassicCodec) -> int:
    """Return the bits of four coordinates."""
    return math.ceil(FOUR * math.log2(base(codec)))


def row_bytes(codec: ClassicCodec) -> int:
    """Return the stored bytes of a vector."""
    bits = codec.dim // FOUR * width(codec) + (codec.dim // BLOCK_SIZES["e8"] if codec.lattice == "e8" else 0)
    return SIDE_BYTES + math.ceil(bits / 8)


def unpack(codec: ClassicCodec, rows: mx.array) -> mx.array:
    """Return the result of ``codec.roundtrip`` in float32, ``[..., dim]``."""
    flat = np.array(rows).reshape(-1, rows.shape[-1])
    norm, largest = (np.ascontiguousarray(flat[:, i : i + 2]).view(np.float16) for i in (0, 2))
    bits = np.unpackbits(flat[:, SIDE_BYTES:], axis=1)
    count = codec.dim // FOUR
    numbers = bits[:, : count * width(codec)].reshape(len(flat), count, width(codec)).astype(np.int64)
    numbers = (numbers << np.arange(width(codec))).sum(axis=2)
    words = (numbers[..., None] // base(codec) ** np.arange(FOUR)) % base(codec)
    words = words.reshape(len(flat), -1, BLOCK_SIZES[codec.lattice])
    side = 2 * codec.q_range
    twice = 2 * words - side
    if codec.lattice == "e8":
        coset = bits[:, count * width(codec) :][:, : codec.dim // BLOCK_SIZES["e8"]].astype(bool)[..., None]
        half = np.where(words < side, 2 * words - side + 1, np.where(words == side, -side, side))
        twice = np.where(coset, half, twice)
    point = mx.array((twice / 2).reshape(len(flat), -1).astype(np.float32))
    return codec.value(mx.array(norm), mx.array(largest), point).reshape(*rows.shape[:-1], codec.dim)
