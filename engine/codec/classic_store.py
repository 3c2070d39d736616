"""Stores the published codec's points as bytes, to measure the storage that they need.

The published formula counts ``(2Q + 1)^8`` points of E8 and half of ``(2Q + 1)^4`` of D4. The clamp to the
cube leaves points that are not of the lattice (halves become integers at its faces, sums become odd), and a
store that gives every reconstruction back has to have words for them. So a coordinate is one of ``2Q + 2``
here under E8, with a bit a block for the coset, and one of ``2Q + 1`` under D4; four of them make a number of
whole bits. That is 0.1 to 0.6 bits a value above the formula, the more the smaller Q is.
"""

import math

import numpy as np

from engine.codec.classic import SIZES, ClassicCodec
from engine.mx import mx

FOUR = 4
SIDE_BYTES = 4  # norm and maximum, a half each


def base(codec: ClassicCodec) -> int:
    """Return how many values a coordinate has."""
    return 2 * codec.q_range + (2 if codec.lattice == "e8" else 1)


def row_bytes(codec: ClassicCodec) -> int:
    """Return the stored bytes of a vector."""
    bits = codec.dim // FOUR * _width(codec) + (codec.dim // SIZES["e8"] if codec.lattice == "e8" else 0)
    return SIDE_BYTES + math.ceil(bits / 8)


def pack(codec: ClassicCodec, x: mx.array) -> mx.array:
    """Encode ``[..., dim]`` of any float type to rows, uint8 ``[..., row_bytes]``."""
    norm, largest, point = codec.parts(x)
    twice = np.array(2 * point).astype(np.int64)
    coset = _cosets(codec, twice)
    bits = [_to_bits(_number(codec, twice, coset), _width(codec))]
    if codec.lattice == "e8":
        bits.append(coset.astype(np.uint8))
    sides = [np.array(side).view(np.uint8) for side in (norm, largest)]
    rows = np.concatenate([*sides, np.packbits(np.concatenate(bits, axis=1), axis=1)], axis=1)
    return mx.array(rows.reshape(*x.shape[:-1], rows.shape[-1]))


def unpack(codec: ClassicCodec, rows: mx.array) -> mx.array:
    """Return the result of ``codec.roundtrip`` in float32, ``[..., dim]``."""
    flat = np.array(rows).reshape(-1, rows.shape[-1])
    norm, largest = (np.ascontiguousarray(flat[:, i : i + 2]).view(np.float16) for i in (0, 2))
    bits = np.unpackbits(flat[:, SIDE_BYTES:], axis=1)
    count, width = codec.dim // FOUR, _width(codec)
    numbers = bits[:, : count * width].reshape(len(flat), count, width).astype(np.int64)
    numbers = (numbers << np.arange(width)).sum(axis=2)
    words = (numbers[..., None] // base(codec) ** np.arange(FOUR)) % base(codec)
    words = words.reshape(len(flat), -1, SIZES[codec.lattice])
    side = 2 * codec.q_range
    twice = 2 * words - side
    if codec.lattice == "e8":
        coset = bits[:, count * width :][:, : codec.dim // SIZES["e8"]].astype(bool)[..., None]
        half = np.where(words < side, 2 * words - side + 1, np.where(words == side, -side, side))
        twice = np.where(coset, half, twice)
    point = mx.array((twice / 2).reshape(len(flat), -1).astype(np.float32))
    return codec.value(mx.array(norm), mx.array(largest), point).reshape(*rows.shape[:-1], codec.dim)


def _width(codec: ClassicCodec) -> int:
    return math.ceil(FOUR * math.log2(base(codec)))


def _cosets(codec: ClassicCodec, twice: np.ndarray) -> np.ndarray:
    """Return which blocks have a half-integer coordinate, bool ``[n, blocks]``."""
    odd_halves: np.ndarray = (twice.reshape(len(twice), -1, SIZES[codec.lattice]) % 2 == 1).any(axis=2)
    return odd_halves


def _number(codec: ClassicCodec, twice: np.ndarray, coset: np.ndarray) -> np.ndarray:
    """Return four coordinates as one number, int64 ``[n, dim / 4]``."""
    side = 2 * codec.q_range
    words = (twice + side) // 2
    if codec.lattice == "e8":
        half = np.where(twice == -side, side, np.where(twice == side, side + 1, (twice + side - 1) // 2))
        words = np.where(np.repeat(coset, SIZES["e8"], axis=1), half, words)
    numbers: np.ndarray = (words.reshape(len(twice), -1, FOUR) * base(codec) ** np.arange(FOUR)).sum(axis=2)
    return numbers


def _to_bits(numbers: np.ndarray, width: int) -> np.ndarray:
    bits = (numbers[..., None] >> np.arange(width)) & 1
    return bits.reshape(len(numbers), -1).astype(np.uint8)
