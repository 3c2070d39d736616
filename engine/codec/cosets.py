"""Codewords of a block and their labels: the cosets of q E8 in E8, q = 2^bits.

In coordinates ``c = a + p / 2`` (p is the parity of 2c, the same for all eight, and the sum of a is even), a
coset is named by p and by a modulo the vectors of q E8. These are q times an integer vector of even sum, and
q (1/2)^8. Adding the latter clears the top bit of a_1. The former reduce every a modulo q, except that a_8
keeps one bit more; the even sum makes the lowest bit of a_8 redundant. The rest fits exactly into eight fields
of ``bits`` bits:

    f_1 = p, a_1 without its top bit;  f_2 .. f_7 = a mod q;  f_8 = (a_8 mod 2q) / 2

So every pattern of bits is a codeword, and no codeword has two patterns.
"""

from engine.codec.lattice import tree_sum, two_largest
from engine.codec.spec import INWARD, SHIFT, UNIT
from engine.mx import mx


def inside(point: mx.array, q: int) -> mx.array:
    """Return whether points of E8, ``[..., 8, blocks]``, lie in the shifted Voronoi cell of q E8: 1.0 or 0.0.

    The cell's walls belong to the 240 minimal vectors. The largest inner product with (+-1, +-1, 0^6) is the
    sum of the two largest magnitudes. With (+-1/2)^8, which has an even number of minus signs, it is half the
    sum of all magnitudes, less the smallest one if the number of minus signs is odd. Both must be below q.
    """
    moved = point - _shift(mx.float32)
    size = mx.abs(moved)
    # If a coordinate is 0, it is also the smallest, so its sign does not matter.
    negative = (moved.prod(axis=-2, keepdims=True) < 0).astype(mx.float32)
    eight = size.sum(axis=-2, keepdims=True) * 0.5 - negative * size.min(axis=-2, keepdims=True)
    return (mx.maximum(two_largest(size, -2), eight) < q).astype(mx.float32)


def at_wall(z: mx.array, point: mx.array, q: int) -> mx.array:
    """Return columns moved onto the wall of the cell that their nearest points are furthest behind.

    Both are ``[8, blocks]``. A wall is the plane of all x whose inner product with a minimal vector is that of the
    outermost codewords. ``inside`` says which vector has the largest inner product with a point. The codeword nearest
    to a column outside is nearly always the point nearest to where the column arrives. A wall is a mirror of E8, so on
    it, a point inside and one outside may be equally near, and rounding would choose: the column goes ``INWARD`` too.
    """
    shift = mx.array(SHIFT, dtype=mx.int32)[:, None]
    moved = 8 * mx.round(point * 2).astype(mx.int32) - shift
    negative = (moved < 0).astype(mx.int32)
    parity = negative.sum(axis=-2, keepdims=True) & 1
    size = mx.abs(moved)
    key = (size << 3) | mx.arange(7, -1, -1)[:, None]  # no two coordinates are equal
    first = key.max(axis=-2, keepdims=True)
    second = mx.where(key == first, 0, key).max(axis=-2, keepdims=True)
    least = key.min(axis=-2, keepdims=True)
    eight = size.sum(axis=-2, keepdims=True) - 2 * parity * (least >> 3)
    halves = eight > 2 * ((first >> 3) + (second >> 3))
    magnitude = mx.where(halves, 1, 2 * (key >= second).astype(mx.int32))
    flipped = negative ^ (halves & (key == least)).astype(mx.int32) * parity
    normal = magnitude * (1 - 2 * flipped)  # twice the minimal vector
    top = q + ((normal * shift).sum(axis=-2, keepdims=True) >> 5)
    along = normal.astype(mx.float32)
    excess = 0.5 * tree_sum(z * along, -2) - (top.astype(mx.float32) - INWARD)
    return z - along * (0.25 * excess)


def label(point: mx.array, bits: int) -> mx.array:
    """Return the fields of each point's coset, int32 ``[..., 8, blocks]``; points are float32 of the same shape."""
    q = 1 << bits
    doubled = mx.round(point * 2).astype(mx.int32)
    parity = doubled[..., :1, :] & 1
    whole = (doubled - parity) >> 1
    whole = whole + (whole[..., :1, :] & (q // 2))
    first, middle, last = mx.split(whole, [1, 7], axis=-2)
    wraps = (first >> bits) + (middle >> bits).sum(axis=-2, keepdims=True)
    head = (first & (q - 1)) | (parity << (bits - 1))
    tail = ((last + q * wraps) >> 1) & (q - 1)
    return mx.concatenate([head, middle & (q - 1), tail], axis=-2)


def point_of(fields: mx.array, bits: int) -> mx.array:
    """Return UNIT times the codeword of each column of fields, int16 ``[..., 8, blocks]``, exactly.

    Fields are int16. Both sublattices, q D8 and q D8 + q (1/2)^8, are tried in integers: reduce every coordinate
    to the middle of its period; if an odd number of periods was subtracted, move the largest coordinate by one
    period; keep the shorter result. The shift of the cell makes every comparison strict.
    """
    q = 1 << bits
    period = UNIT * q
    head, middle, last = mx.split(fields, [1, 7], axis=-2)
    parity = head >> (bits - 1)
    head = head & (q // 2 - 1)
    low = (head + middle.sum(axis=-2, keepdims=True).astype(mx.int16)) & 1
    some = mx.concatenate([head, middle, 2 * last + low], axis=-2)
    some = UNIT * some + (UNIT // 2 * parity - _shift(mx.int16))
    total = some.sum(axis=-2, keepdims=True)  # int32, like all of MLX's sums of int16
    near = _Reduced(some + period // 2, total + 4 * period, period)
    half = _Reduced(some, total, period)
    take = (half.norm < near.norm).astype(mx.int16)
    point = near.point + take * (half.point - near.point)
    largest = near.largest + take * (half.largest - near.largest)
    excess = (near.odd + take * (half.odd - near.odd)) * period
    moves = (mx.abs(point) == largest).astype(mx.int16) * mx.sign(point)
    return point - moves * excess + _shift(mx.int16)


class _Reduced:
    """Points reduced coordinate by coordinate into [-period / 2, period / 2).

    They are given as the points plus half a period, int16 ``[..., 8, blocks]``, and the sums of those coordinates.
    """

    def __init__(self, ahead: mx.array, total: mx.array, period: int) -> None:
        self.point = (ahead & (period - 1)) - period // 2  # before the parity is mended
        sums = self.point.sum(axis=-2, keepdims=True) + 4 * period
        # 1 if an odd number of periods was subtracted.
        self.odd = (((total - sums) // period) & 1).astype(mx.int16)
        self.largest = mx.abs(self.point).max(axis=-2, keepdims=True)
        mended = self.odd * (period - 2 * self.largest.astype(mx.float32)) * period
        # The exact squared length of the corrected point, float32.
        self.norm = mx.square(self.point.astype(mx.float32)).sum(axis=-2, keepdims=True) + mended


def _shift(dtype: mx.Dtype) -> mx.array:
    shift = mx.array(SHIFT, dtype=dtype)[:, None]
    return shift / UNIT if dtype == mx.float32 else shift
