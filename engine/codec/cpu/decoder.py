"""Decodes rows in NumPy. The numbers equal those of ``engine.codec.cosets.point_of`` bit for bit.

Coordinates are in units in which a period of the lattice is 2^8, or 2^16 for more than four bits. So an integer of 8 or
16 bits reduces a coordinate without any operation, because it wraps around. Every pass writes into memory that is
reused, and none branches or shifts bytes to the left, which NumPy does slowly.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from engine.codec.cpu.encoder import steps_of
from engine.codec.cpu.scratch import Scratch
from engine.codec.spec import BETA_GAP, SCALE_MAX, SCALE_MIN, SCALE_ZERO, SHIFT, Layout


class _Kind(NamedTuple):
    """Types for a coordinate modulo a period, and a signed type of twice as many bits."""

    signed: Any
    unsigned: Any
    wide: Any


_SHORT = _Kind(np.int8, np.uint8, np.int16)
_LONG = _Kind(np.int16, np.uint16, np.int32)
_MOST_SHORT = 4  # bits of the widest code whose coordinates fit into the short types
COLUMNS = 24576  # blocks that are decoded together, so that their arrays stay in a core's cache


def decode(rows: np.ndarray, layout: Layout, out: np.ndarray | None = None) -> np.ndarray:
    """Return vectors with the rotation still on, float32 ``[m, dim, n]``, of rows, uint8 ``[m, n, nbytes]``.

    They are written into ``out`` if it is given.
    """
    m, n, _ = rows.shape
    out = np.empty((m, layout.dim, n), np.float32) if out is None else out
    blocks = out.reshape(m, 8, layout.blocks, n)
    size = max(1, COLUMNS // (layout.blocks * m))
    for i in range(0, n, size):
        _decode(rows[:, i : i + size], layout, blocks[..., i : i + size])
    return out


def _decode(rows: np.ndarray, layout: Layout, out: np.ndarray) -> None:
    m, n, nbytes = rows.shape
    flat = np.ascontiguousarray(rows.reshape(-1, nbytes).T)
    doubled = twice_point_of(_fields(flat, layout), layout.bits)
    doubled = doubled.reshape(8, layout.blocks, m, n).transpose(2, 0, 1, 3)
    steps = _half_steps(flat, layout).reshape(layout.blocks, m, n).swapaxes(0, 1)
    np.copyto(out, doubled)
    out *= steps[:, None]


_scratch = Scratch()


def _arrays(columns: int, dtype: Any) -> list[np.ndarray]:
    """Return four arrays ``[8, columns]`` and one ``[4, columns]`` of any content."""
    halves = _scratch.take(36 * columns * np.dtype(dtype).itemsize).view(dtype).reshape(9, 4, columns)
    return [*halves[:8].reshape(4, 8, columns), halves[8]]


def _fields(flat: np.ndarray, layout: Layout) -> np.ndarray:
    """Return the fields times 2^(7 - bits), uint8 ``[8, columns]``, of bytes ``[nbytes, n]``."""
    fields = np.empty((layout.dim, flat.shape[1]), np.uint8)
    at = 2 + layout.beta_bytes
    for number, (width, low) in enumerate(layout.planes):
        size = layout.dim * width // 8
        plane = flat[at : at + size]
        lowest = low + 7 - layout.bits
        for i in range(8 // width):
            part = fields[size * i : size * (i + 1)]
            right = width * i - lowest
            moved = plane >> right if right >= 0 else plane * np.uint8(1 << -right)
            bits = np.uint8(((1 << width) - 1) << lowest)
            if number:
                moved &= bits
                part |= moved
            else:
                np.bitwise_and(moved, bits, out=part)
        at += size
    return fields.reshape(8, -1)


@cache
def _half_step_tables() -> tuple[np.ndarray, np.ndarray]:
    """Return half the step of each scale, without and with the beta bit, uint32 bits by the scale modulo 2^16."""
    scale = np.arange(1 << 16).astype(np.int16).astype(np.int32)
    alive = (scale != SCALE_ZERO) * np.float32(0.5)
    fine, coarse = (
        (steps_of(np.clip(x, SCALE_MIN, SCALE_MAX + BETA_GAP)) * alive).view(np.uint32)
        for x in (scale, scale + BETA_GAP)
    )
    return fine, coarse


def _half_steps(flat: np.ndarray, layout: Layout) -> np.ndarray:
    """Return the factors of doubled points, float32 ``[blocks, n]``, of bytes ``[nbytes, n]``."""
    scale = flat[1] * np.uint16(256) + flat[0]
    fine, coarse = (table.take(scale) for table in _half_step_tables())
    bits = flat[2 : 2 + layout.beta_bytes, None] & (1 << np.arange(8, dtype=np.uint8))[:, None]
    beta = (bits != 0).reshape(8 * layout.beta_bytes, -1)[: layout.blocks]
    # Selected by bits: NumPy's ``where`` branches.
    steps = np.negative(beta.astype(np.uint32))
    steps &= fine ^ coarse
    steps ^= fine
    halves: np.ndarray = steps.view(np.float32)
    return halves


def twice_point_of(fields: np.ndarray, bits: int) -> np.ndarray:
    """Return twice the codeword of each column, int8 or int16 ``[8, columns]``. Fields are times 2^(7 - bits).

    Let x be the coordinates minus SHIFT, reduced modulo the period P. The candidates are x, and x with each coordinate
    moved by half a period, so the magnitudes of x suffice: their sum S, the largest M and the smallest m. The second
    candidate is nearer if ``2 P - S + 2 m odd2 < odd1 (P - 2 M)``. ``odd`` says whether an odd number of periods was
    subtracted. If so, one more is subtracted from the coordinate that it hurts least.
    """
    kind = _SHORT if bits <= _MOST_SHORT else _LONG
    unsigned = kind.unsigned
    width = np.iinfo(unsigned).bits
    period = 1 << width
    *(x, size, moves, other), half = _arrays(fields.shape[1], unsigned)
    odd = _reduce(fields, bits, unsigned, x, other)
    top = width - 1
    odd_half = odd ^ (np.bitwise_xor.reduce(x) >> top)
    np.abs(x.view(kind.signed), out=size.view(kind.signed))
    most, least = np.maximum.reduce(size), np.minimum.reduce(size)
    # Only the last coordinate may be half a period, so a sum of two fits.
    total = np.add.reduce(np.add(size[:4], size[4:], out=half).astype(kind.wide), dtype=kind.wide)
    rest = 2 * period - total
    rest += odd_half * (least + least.astype(kind.wide))
    nearer = rest < odd * (period - 2 * most.astype(kind.wide))
    picks = nearer.view(np.uint8).astype(unsigned)
    x ^= picks * unsigned(1 << top)
    flips = odd ^ ((odd ^ odd_half) & picks)
    key = most ^ ((most ^ least) & np.negative(picks))
    key |= flips - unsigned(1)  # no magnitude has all bits
    moved = np.equal(size, key, out=moves.view(np.bool_).reshape(-1)[: x.size].reshape(x.shape))
    # A shift rounds down, so it leaves out the part of SHIFT except where SHIFT is 0.
    doubled: np.ndarray = np.right_shift(x.view(kind.signed), width - bits - 1, out=size.view(kind.signed))
    # XOR with -P flips the period's bit and all higher ones: it subtracts a period, or adds one if x is negative.
    doubled ^= np.multiply(moved.view(np.int8), kind.signed(-(2 << bits)), out=other.view(kind.signed))
    doubled[1:] += kind.signed(1)
    return doubled


def _reduce(fields: np.ndarray, bits: int, unsigned: Any, x: np.ndarray, scratch: np.ndarray) -> np.ndarray:
    """Write coordinates minus SHIFT, modulo a period, into ``x``; return the parity of the subtracted periods."""
    width = np.iinfo(unsigned).bits
    unit = 1 << (width - 1 - bits)  # of the fields
    y = fields if unsigned is np.uint8 else fields * unsigned(1 << (width - 8))
    parity = y[0] >> unsigned(width - 2)
    y[0] &= unsigned((1 << (width - 2)) - 1)
    # A coordinate is 2 y + (p - SHIFT / 8) unit. So an odd number of periods is subtracted if the sum with this has the
    # top bit. The last field lacks its lowest bit, which makes the sum of all even.
    ahead = (1 << (bits - 1)) * unit - unit
    shifted = parity * unsigned(unit) + unsigned(ahead)
    np.add(y[:7], shifted, out=scratch[:7])
    folded = np.bitwise_xor.reduce(scratch[:7])
    y[7] += y[7]
    y[7] |= (folded ^ shifted) & unsigned(unit)
    np.add(y[7], shifted, out=scratch[7])
    odd: np.ndarray = (folded ^ scratch[7]) >> unsigned(width - 1)
    np.add(scratch, y, out=x)
    x -= (np.array(SHIFT) * (unit // 8) + ahead).astype(unsigned)[:, None]
    return odd
