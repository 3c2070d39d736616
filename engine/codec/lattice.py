"""Nearest points of D4, D8 and E8, vectorised for MLX.

A batch of points is ``[..., n, blocks]``: coordinates on the last axis but one, so that every reduction over
a point's coordinates runs over whole rows of neighbouring blocks. Selections are arithmetic with 0 and 1,
since ``mx.where`` is slow on the CPU and everything here is exact in float32.

Source: J. H. Conway and N. J. A. Sloane, "Fast quantizing and decoding algorithms for lattice quantizers and
codes", IEEE Transactions on Information Theory 28 (1982), algorithms 2 (D_n) and 5 (E8).
"""

from typing import NamedTuple

from engine.mx import mx


class Rounded(NamedTuple):
    """The nearest point of D_n before its parity is mended.

    Attributes:
        point: coordinates rounded, ``[..., n, blocks]``, ties to even.
        worst: the coordinate that rounding hurt most, the first of them, int32 ``[..., 1, blocks]``.
        odd: 1 where the sum is odd and that coordinate has to move, else 0, ``[..., 1, blocks]``.
        distance: squared distance to the mended point, ``[..., 1, blocks]``.
    """

    point: mx.array
    worst: mx.array
    odd: mx.array
    distance: mx.array


def tree_sum(x: mx.array, axis: int) -> mx.array:
    """Sum one axis by halves, keeping it; the order of additions is part of the codec's definition."""
    while (size := x.shape[axis]) > 1:
        half = size // 2
        first, second, odd = mx.split(x, [half, 2 * half], axis=axis)
        summed = first + second
        if size % 2:
            head, tail = mx.split(summed, [1], axis=axis)
            summed = mx.concatenate([head + odd, tail], axis=axis)
        x = summed
    return x


def nearest_d(z: mx.array) -> mx.array:
    """Return the nearest points of D_n, the integer vectors of even sum, to ``[..., n, blocks]``."""
    return _mend(z, _round(z))


def nearest_e8(z: mx.array) -> tuple[mx.array, mx.array]:
    """Return the nearest points of E8 to ``[..., 8, blocks]`` and squared distances, ``[..., 1, blocks]``.

    E8 is D8 and D8 shifted by one half; the integer coset wins a tie.
    """
    whole, half = _round(z), _round(z - 0.5)
    take = (half.distance < whole.distance).astype(mx.float32)
    chosen = Rounded(
        whole.point + take * (half.point + 0.5 - whole.point),
        whole.worst + take.astype(mx.int32) * (half.worst - whole.worst),
        whole.odd + take * (half.odd - whole.odd),
        mx.minimum(whole.distance, half.distance),
    )
    return _mend(z, chosen), chosen.distance


def _round(z: mx.array) -> Rounded:
    point = mx.round(z)
    rest = z - point
    hurt = mx.abs(rest)
    total = point.sum(axis=-2, keepdims=True)
    odd = total - 2 * mx.floor(total * 0.5)
    worst = mx.argmax(hurt, axis=-2, keepdims=True).astype(mx.int32)
    distance = tree_sum(rest * rest, -2) + odd * (1 - 2 * hurt.max(axis=-2, keepdims=True))
    return Rounded(point, worst, odd, distance)


def _mend(z: mx.array, rounded: Rounded) -> mx.array:
    """Move the worst coordinate to its second nearest neighbour where the sum is odd."""
    coordinate = mx.arange(z.shape[-2], dtype=mx.int32)[:, None]
    chosen = (coordinate == rounded.worst).astype(mx.float32)
    up = (z >= rounded.point).astype(mx.float32)
    return rounded.point + chosen * rounded.odd * (2 * up - 1)
