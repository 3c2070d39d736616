"""Nearest points of D4, D8 and E8, vectorised for MLX.

A batch of points is ``[..., n, blocks]``. Coordinates are on the second last axis, so that every reduction over
a point's coordinates runs over whole rows of neighbouring blocks. On a CPU, MLX is slow at ``round``, ``floor``,
``where``, ``argmax`` and casts of booleans, so sums, products and bit operations replace them.

Source: J. H. Conway and N. J. A. Sloane, "Fast quantizing and decoding algorithms for lattice quantizers and
codes", IEEE Transactions on Information Theory 28 (1982), algorithms 2 (D_n) and 5 (E8).
"""

from engine.mx import mx

# If this is added to a float32 below 2^22, the low bits are the nearest integer (ties to even).
ROUNDER = 1.5 * 2.0**23
# Bits of a float32: the sign; and the magnitude, without the bits that ``Rounded.key`` sets.
SIGN, REST = 1 << 31, 0x7FFFFFF8


class Rounded:
    """Coordinates below 2^22, float32 ``[..., n, blocks]``, n at most 8, rounded to integers, ties to even."""

    def __init__(self, z: mx.array) -> None:
        moved = z + ROUNDER
        self.point = moved - ROUNDER  # the integers, float32
        rest = z - self.point
        bits = rest.view(mx.uint32)
        self.sign = bits & SIGN  # of what rounding took away, uint32
        # The magnitudes of `rest` as bits of a float32, uint32. The last three bits name the coordinate. Keys compare
        # as magnitudes do, and no two coordinates of a block are equal.
        self.key = (bits & REST) | mx.arange(z.shape[-2] - 1, -1, -1, dtype=mx.uint32)[:, None]
        self.square = tree_sum(rest * rest, -2)  # the squared distance, float32 `[..., 1, blocks]`
        # The sum of the integers, correct in its last bit, uint32 `[..., 1, blocks]`.
        self.total = moved.view(mx.uint32).sum(axis=-2, keepdims=True)

    def moved(self, key: mx.array, step: mx.array, all_steps: mx.array | None = None) -> mx.array:
        """Return the points after a step in one coordinate of each and, if given, in all coordinates.

        ``key`` is that of the coordinate that moves. Steps, float32, are positive towards the point that was rounded;
        ``all_steps`` adds to ``step``. All are ``[..., 1, blocks]``.
        """
        steps = (self.key == key).astype(mx.float32) * step
        if all_steps is not None:
            steps = steps + all_steps
        return self.point + (steps.view(mx.uint32) ^ self.sign).view(mx.float32)


def tree_sum(x: mx.array, axis: int) -> mx.array:
    """Sum one axis by halves, and keep the axis. The order of additions is part of the codec's definition."""
    while (size := x.shape[axis]) > 1:
        if size % 2:
            first, second, last = mx.split(x, [size // 2, size - 1], axis=axis)
            head, tail = mx.split(first + second, [1], axis=axis)
            x = mx.concatenate([head + last, tail], axis=axis)
        else:
            first, second = mx.split(x, 2, axis=axis)
            x = first + second
    return x


def two_largest(size: mx.array, axis: int) -> mx.array:
    """Return the sum of the two largest of eight sizes along an axis, and keep the axis."""
    first, second = mx.split(size, 2, axis=axis)
    top, below = mx.maximum(first, second), mx.minimum(first, second)
    while top.shape[axis] > 1:
        (a, b), (low, high) = mx.split(top, 2, axis=axis), mx.split(below, 2, axis=axis)
        top, below = mx.maximum(a, b), mx.maximum(mx.minimum(a, b), mx.maximum(low, high))
    return top + below


def nearest_d(z: mx.array) -> mx.array:
    """Return the nearest points of D_n, the integer vectors of even sum, to ``[..., n, blocks]``.

    If the sum is odd, the coordinate that rounding hurt most moves to its second nearest integer.
    """
    rounded = Rounded(z)
    parity = (rounded.total & 1).astype(mx.float32)
    return rounded.moved(rounded.key.max(axis=-2, keepdims=True), parity)


def nearest_e8(z: mx.array) -> tuple[mx.array, mx.array]:
    """Return the nearest points of E8 to ``[..., 8, blocks]`` and squared distances, ``[..., 1, blocks]``.

    E8 consists of D8 and D8 shifted by one half; the integer coset wins ties. If rounding to integers moves a
    coordinate by ``r``, rounding to halves moves it by ``1/2 - |r|`` the other way. So one rounding serves both cosets.
    """
    rounded = Rounded(z)
    most, least = (find(rounded.key, axis=-2, keepdims=True) for find in (mx.max, mx.min))
    hurt = tree_sum(rounded.key.view(mx.float32), -2)
    below = rounded.sign.sum(axis=-2, keepdims=True) >> 31  # its parity: the sum wraps around
    parity = (rounded.total & 1).astype(mx.float32)
    odd_half = ((rounded.total + below) & 1).astype(mx.float32)
    whole = rounded.square + parity * (1 - 2 * most.view(mx.float32))
    half = rounded.square + (2 - hurt) + odd_half * (2 * least.view(mx.float32))

    take = half < whole
    halves = take.astype(mx.float32)
    key = most + take.astype(mx.uint32) * (least - most)
    step = parity - halves * (parity + odd_half)
    return rounded.moved(key, step, 0.5 * halves), mx.minimum(whole, half)
