"""Nearest points of E8 in NumPy, as *twice* their coordinates in int16, which takes half the memory of float32."""

import numpy as np

from engine.codec.cpu.scratch import Scratch
from engine.codec.spec import INWARD, SHIFT

ROUNDER = np.float32(1.5 * 2.0**23)
REST = np.uint32(0x7FFFFFF8)
NUMBERS = np.arange(7, -1, -1, dtype=np.uint32)[:, None]
PLACES = np.arange(7, -1, -1, dtype=np.int16)[:, None]
SHIFTS = np.array(SHIFT, np.int16)[:, None]


def nearest(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return twice the nearest points of E8, int16, and squared distances ``[columns]``, of float32 ``[8, columns]``.

    See ``engine.codec.lattice.nearest_e8``. Coordinates may be 2^14 at most.
    """
    (number, rest, key, scratch), (short, _), (moves, flips) = _arrays(z.shape[1])
    np.add(z, ROUNDER, out=number)
    np.copyto(short, number.view(np.int32), casting="unsafe")  # the low bits are the integer
    odd = np.bitwise_xor.reduce(number.view(np.uint32)) & np.uint32(1)
    np.subtract(number, ROUNDER, out=number)
    np.subtract(z, number, out=rest)
    signs = rest.view(np.uint32)
    odd_half = odd ^ (np.bitwise_xor.reduce(signs) >> np.uint32(31))
    keys = np.bitwise_and(signs, REST, out=key.view(np.uint32))
    keys |= NUMBERS
    most, least = np.maximum.reduce(keys), np.minimum.reduce(keys)
    hurt = halved_sum(key, scratch).copy()
    square = halved_sum(np.multiply(rest, rest, out=scratch), scratch)
    whole = square + odd.astype(np.float32) * (1 - 2 * most.view(np.float32))
    half = square + (2 - hurt) + odd_half.astype(np.float32) * (2 * least.view(np.float32))
    take = half < whole
    # Twice the step of the chosen coordinate, and below of all coordinates, towards the unrounded point.
    step = np.where(take, -2 * odd_half.astype(np.int8), 2 * odd.astype(np.int8))
    np.equal(keys, np.where(take, least, most), out=moves.view(np.bool_))
    moves *= step
    moves += take.view(np.int8)
    np.less(signs.view(np.int32), 0, out=flips.view(np.bool_))
    np.negative(flips, out=flips)
    moves ^= flips
    moves -= flips
    short += short
    return short + moves, np.minimum(whole, half)


def inside(points: np.ndarray, q: int) -> np.ndarray:
    """Return whether twice points of E8, ``[8, columns]``, lie in the shifted cell of q E8: see ``cosets.inside``."""
    _, (moved, _), _ = _arrays(points.shape[1])
    np.left_shift(points, 3, out=moved)  # 16 times a coordinate
    moved -= SHIFTS
    odd = np.bitwise_xor.reduce(moved) >> 15
    size = np.abs(moved, out=moved)
    eight = 2 * odd * np.minimum.reduce(size)
    eight += np.add.reduce(size, dtype=np.int16)
    fits: np.ndarray = np.maximum(2 * np.add(*_two_largest(size)), eight) < 32 * q
    return fits


def at_wall(z: np.ndarray, points: np.ndarray, q: int) -> np.ndarray:
    """Return columns moved onto the wall of the cell of q E8 that twice their nearest points are furthest behind.

    See ``cosets.at_wall``.
    """
    (along, product, _, _), (size, key), (normal, negative) = _arrays(z.shape[1])
    np.left_shift(points, 3, out=size)
    size -= SHIFTS
    np.less(size, 0, out=negative.view(np.bool_))
    parity = np.bitwise_xor.reduce(negative)
    np.abs(size, out=size)
    np.left_shift(size, 3, out=key)
    key |= PLACES  # as in `nearest`: no two coordinates are equal
    eight = np.add.reduce(size, dtype=np.int16)
    least = np.minimum.reduce(key)
    first, second = _two_largest(key)
    eight -= 2 * parity * (least >> 3)
    halves = eight > 2 * ((first >> 3) + (second >> 3))
    np.greater_equal(key, np.where(halves, np.int16(0), second), out=normal.view(np.bool_))
    normal *= 2 - halves.view(np.int8)  # the magnitudes of twice the minimal vector
    flip = np.where(halves & parity.view(np.bool_), least, np.int16(-1))
    negative ^= (key == flip).view(np.int8)
    np.negative(negative, out=negative)
    normal ^= negative
    normal -= negative
    np.copyto(along, normal)
    np.multiply(normal, SHIFTS, out=negative, casting="unsafe")
    top = (np.add.reduce(negative, dtype=np.int8) >> 5) + np.float32(q - INWARD)
    excess = np.float32(0.5) * halved_sum(np.multiply(z, along, out=product), product) - top
    along *= np.float32(0.25) * excess
    at: np.ndarray = z - along
    return at


def _two_largest(size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the two largest of eight sizes."""
    top, below = np.maximum(size[:4], size[4:]), np.minimum(size[:4], size[4:])
    while len(top) > 1:
        half = len(top) // 2
        below = np.maximum(np.minimum(top[:half], top[half:]), np.maximum(below[:half], below[half:]))
        top = np.maximum(top[:half], top[half:])
    return top[0], below[0]


_scratch = Scratch()


def _arrays(columns: int) -> list[list[np.ndarray]]:
    """Return arrays ``[8, columns]`` of any content: four of float32, two of int16 and two of int8."""
    kinds, at = [], 0
    memory = _scratch.take(8 * columns * (4 * 4 + 2 * 2 + 2))
    for dtype, count, width in ((np.float32, 4, 4), (np.int16, 2, 2), (np.int8, 2, 1)):
        size = 8 * columns * count * width
        kinds.append(list(memory[at : at + size].view(dtype).reshape(count, 8, columns)))
        at += size
    return kinds


def halved_sum(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Add up the first axis by halves, into ``out`` if given: the codec's order for numbers that are rounded."""
    while len(x) > 1:
        half = len(x) // 2
        added = np.add(x[:half], x[half : 2 * half], out=None if out is None else out[:half])
        if len(x) % 2:
            added[0] += x[-1]
        x = added
    total: np.ndarray = x[0]
    return total


def largest_product(y: np.ndarray) -> np.ndarray:
    """Return each block's largest inner product with a minimal vector of E8, ``[blocks, n]``, of ``[8, blocks, n]``."""
    size = np.abs(y)
    flips = np.bitwise_xor.reduce(y.view(np.uint32)) >> np.uint32(31)
    eight = halved_sum(size) * np.float32(0.5) - flips.astype(np.float32) * np.minimum.reduce(size)
    product: np.ndarray = np.maximum(np.add(*_two_largest(size)), eight)
    return product
