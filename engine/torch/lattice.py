"""Nearest points of E8 in torch, as *twice* their coordinates in int16: ``engine.codec.cpu.lattice``, bit for bit.

All operations are elementwise, or exact in integers, so they round alike on every device that rounds float32 as
IEEE 754 says.
"""

from collections.abc import Callable

import torch

from engine.codec.spec import INWARD, SHIFT

ROUNDER = 1.5 * 2.0**23
_ROUNDER_BITS = 0x4B400000
_REST = 0x7FFFFFF8


def fold(operation: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Reduce the first axis by halves; the order of additions is the codec's."""
    while len(x) > 1:
        half = len(x) // 2
        folded = operation(x[:half], x[half : 2 * half])
        if len(x) % 2:
            folded = torch.cat([operation(folded[:1], x[-1:]), folded[1:]])
        x = folded
    return x[0]


def column(values: tuple[float, ...], like: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return values as ``[len, 1]`` on the device, and of the type, of a tensor."""
    return torch.tensor(values, dtype=dtype or like.dtype, device=like.device)[:, None]


def nearest(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return twice the nearest points of E8, int16, and squared distances ``[columns]``, of float32 ``[8, columns]``.

    See ``engine.codec.lattice.nearest_e8``. Coordinates may be 2^14 at most.
    """
    moved = z + ROUNDER
    integers = moved.view(torch.int32)
    odd = fold(torch.bitwise_xor, integers) & 1
    rest = z - (moved - ROUNDER)
    signs = rest.view(torch.int32)
    odd_half = odd ^ (fold(torch.bitwise_xor, signs) < 0).int()
    keys = (signs & _REST) | column(tuple(range(7, -1, -1)), signs)
    most, least = keys.amax(0), keys.amin(0)
    hurt = fold(torch.add, keys.view(torch.float32))
    square = fold(torch.add, rest * rest)
    whole = square + odd.float() * (1 - 2 * most.view(torch.float32))
    half = square + (2 - hurt) + odd_half.float() * (2 * least.view(torch.float32))
    take = half < whole
    # Twice the step of the chosen coordinate, and below of all coordinates, towards the unrounded point.
    step = torch.where(take, -2 * odd_half, 2 * odd).to(torch.int16)
    moves = (keys == torch.where(take, least, most)) * step + take.to(torch.int16)
    points = 2 * (integers - _ROUNDER_BITS).to(torch.int16) + torch.where(signs < 0, -moves, moves)
    return points, torch.minimum(whole, half)


def inside(points: torch.Tensor, q: int) -> torch.Tensor:
    """Return whether twice points of E8, ``[8, columns]``, lie in the shifted cell of q E8: see ``cosets.inside``."""
    moved = 8 * points - column(SHIFT, points)
    odd = (fold(torch.bitwise_xor, moved) < 0).to(torch.int16)
    size = moved.abs()
    eight = fold(torch.add, size) - 2 * odd * size.amin(0)
    return torch.maximum(2 * two_largest(size), eight) < 32 * q


def at_wall(z: torch.Tensor, points: torch.Tensor, q: int) -> torch.Tensor:
    """Return columns moved onto the wall of the cell of q E8 that twice their nearest points are furthest behind.

    See ``engine.codec.cosets.at_wall``.
    """
    shift = column(SHIFT, points)
    moved = 8 * points - shift
    parity = (fold(torch.bitwise_xor, moved) < 0).to(torch.int16)
    size = moved.abs()
    key = (size << 3) | column(tuple(range(7, -1, -1)), points)  # no two coordinates are equal
    first, least = key.amax(0), key.amin(0)
    second = torch.where(key == first, 0, key).amax(0)
    eight = fold(torch.add, size) - 2 * parity * (least >> 3)
    halves = eight > 2 * ((first >> 3) + (second >> 3))
    magnitude = torch.where(halves, 1, 2 * (key >= second).to(torch.int16))
    flipped = (moved < 0) ^ (halves & (parity > 0) & (key == least))
    normal = torch.where(flipped, -magnitude, magnitude)  # twice the minimal vector
    top = q + (fold(torch.add, normal * shift) >> 5)
    along = normal.float()
    excess = 0.5 * fold(torch.add, z * along) - (top.float() - INWARD)
    return z - along * (0.25 * excess)


def two_largest(size: torch.Tensor) -> torch.Tensor:
    """Return the sum of the two largest of eight sizes."""
    top, below = torch.maximum(size[:4], size[4:]), torch.minimum(size[:4], size[4:])
    while len(top) > 1:
        half = len(top) // 2
        below = torch.maximum(
            torch.minimum(top[:half], top[half:]), torch.maximum(below[:half], below[half:])
        )
        top = torch.maximum(top[:half], top[half:])
    return top[0] + below[0]


def largest_product(y: torch.Tensor) -> torch.Tensor:
    """Return each block's largest inner product with a minimal vector of E8, ``[blocks, n]``, of ``[8, blocks, n]``."""
    size = y.abs()
    flips = (fold(torch.bitwise_xor, y.view(torch.int32)) < 0).float()
    eight = fold(torch.add, size) * 0.5 - flips * fold(torch.minimum, size)
    return torch.maximum(two_largest(size), eight)
