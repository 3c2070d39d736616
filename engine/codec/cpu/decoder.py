"""Decodes rows in NumPy. The numbers equal those of ``engine.codec.cosets.point_of`` bit for bit.

Coordinates are in units in which a period of the lattice is 2^8, or 2^16 for more than four bits. So an integer of 8 or
16 bits reduces a coordinate without any operation, because it wraps around.
"""

from typing import Any

import numpy as np

from engine.codec.cpu.encoder import COLUMNS, steps_of
from engine.codec.cpu.lattice import fold
from engine.codec.spec import BETA_GAP, SCALE_MAX, SCALE_MIN, SCALE_ZERO, SHIFT, UNIT, Layout

# Types for a coordinate modulo a period, signed and unsigned, and a signed type of twice as many bits.
_SHORT: tuple[Any, Any, Any] = (np.int8, np.uint8, np.int16)
_LONG: tuple[Any, Any, Any] = (np.int16, np.uint16, np.int32)
_MOST_SHORT = 4  # bits of the widest code whose coordinates fit into the short types


def decode(rows: np.ndarray, layout: Layout) -> np.ndarray:
    """Return vectors with the rotation still on, float32 ``[m, dim, n]``, of rows, uint8 ``[m, n, nbytes]``."""
    m, n, _ = rows.shape
    out = np.empty((m, 8, layout.blocks, n), np.float32)
    size = max(1, COLUMNS // (layout.blocks * m))
    for i in range(0, n, size):
        _decode(rows[:, i : i + size], layout, out[..., i : i + size])
    return out.reshape(m, layout.dim, n)


def _decode(rows: np.ndarray, layout: Layout, out: np.ndarray) -> None:
    m, n, nbytes = rows.shape
    flat = np.ascontiguousarray(rows.reshape(-1, nbytes).T)
    points = point_of(_fields(flat, layout).reshape(8, -1), layout.bits)
    points = points.reshape(8, layout.blocks, m, n).transpose(2, 0, 1, 3)
    steps = _block_steps(flat, layout).reshape(layout.blocks, m, n).swapaxes(0, 1)
    np.multiply(points, steps[:, None], out=out, dtype=np.float32, casting="unsafe")


def _fields(flat: np.ndarray, layout: Layout) -> np.ndarray:
    """Return the fields, uint8 ``[dim, n]``, of bytes ``[nbytes, n]``."""
    fields = np.empty((layout.dim, flat.shape[1]), np.uint8)
    at = 2 + layout.beta_bytes
    for number, (width, low) in enumerate(layout.planes):
        size = layout.dim * width // 8
        plane = flat[at : at + size]
        for i in range(8 // width):
            part = fields[size * i : size * (i + 1)]
            values = (plane >> (width * i)) & ((1 << width) - 1)
            if number:
                part |= values << low
            else:
                np.left_shift(values, low, out=part)
        at += size
    return fields


def _block_steps(flat: np.ndarray, layout: Layout) -> np.ndarray:
    """Return the factors of points that were multiplied by UNIT, float32 ``[blocks, n]``."""
    scale = flat[0].astype(np.int32) | flat[1].view(np.int8).astype(np.int32) << 8
    beta = np.unpackbits(flat[2 : 2 + layout.beta_bytes], axis=0, count=layout.blocks, bitorder="little")
    steps = steps_of(np.clip(scale + BETA_GAP * beta, SCALE_MIN, SCALE_MAX + BETA_GAP))
    steps *= (scale != SCALE_ZERO) * np.float32(1 / UNIT)
    return steps


def point_of(fields: np.ndarray, bits: int) -> np.ndarray:
    """Return UNIT times the codeword of each column of fields, int16 or int32 ``[8, columns]``.

    Let x be the coordinates reduced modulo the period P. The candidates are x, and x with each coordinate moved by half
    a period, so the magnitudes of x suffice: their sum S, the largest M and the smallest m. The second candidate is
    nearer if ``2 P - S + 2 m odd2 < odd1 (P - 2 M)``. ``odd`` says whether an odd number of periods was subtracted. If
    so, one more is subtracted from the coordinate that it hurts least.
    """
    signed, unsigned, wide = _SHORT if bits <= _MOST_SHORT else _LONG
    width = np.iinfo(unsigned).bits
    period = 1 << width
    x, odd = _reduced(fields, bits, unsigned)
    top = unsigned(width - 1)
    odd_half = odd ^ (fold(np.bitwise_xor, x) >> top)
    size = np.abs(x.view(signed)).view(unsigned)
    most, least = fold(np.maximum, size), fold(np.minimum, size)
    rest = 2 * period - fold(np.add, size.astype(wide)) + 2 * odd_half.astype(wide) * least
    take = rest < odd * (period - 2 * most.astype(wide))
    x ^= take.astype(unsigned) << top
    moves = size == np.where(take, least, most)
    moves &= np.where(take, odd_half, odd).astype(bool)
    # XOR with -period flips the period's bit and all higher ones: it subtracts a period, or adds one if x is negative.
    points: np.ndarray = x.view(signed).astype(wide)
    points ^= moves * wide(-period)
    points >>= width - bits - 4
    points += np.array(SHIFT, wide)[:, None]
    return points


def _reduced(fields: np.ndarray, bits: int, unsigned: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return coordinates minus SHIFT, modulo a period, and the parity of the number of subtracted periods."""
    width = np.iinfo(unsigned).bits
    more = width - bits - 4
    parity: np.ndarray = (fields[0] >> (bits - 1)).astype(unsigned)
    x: np.ndarray = fields.astype(unsigned)
    x[0] &= (1 << (bits - 1)) - 1
    x[7] += x[7]
    x[7] |= fold(np.bitwise_xor, x[:7]) & 1
    shift: np.ndarray = np.array(SHIFT, unsigned)[:, None] << unsigned(more)
    # (x + period / 2) / 2, rounded down: the top bit is the parity of the periods.
    halved: np.ndarray = x * unsigned(8 << more)  # NumPy shifts bytes slowly
    halved += (parity << (more + 2)) + unsigned(1 << (width - 2))
    halved -= (shift + unsigned(1)) >> 1
    x *= unsigned(16 << more)
    x += parity << (more + 3)
    x -= shift
    return x, fold(np.bitwise_xor, halved) >> unsigned(width - 1)
