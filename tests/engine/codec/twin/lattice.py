"""Nearest points of D4, D8 and E8 in NumPy.

Source: J. H. Conway and N. J. A. Sloane, "Fast quantizing and decoding algorithms for lattice quantizers and
codes", IEEE Transactions on Information Theory 28 (1982), algorithms 2 (D_n) and 5 (E8).
"""

import numpy as np


def tree_sum(x: np.ndarray, axis: int) -> np.ndarray:
    """Sum one axis by halves: first half plus second half, an odd last element added to the first."""
    x = np.moveaxis(x, axis, 0)
    while len(x) > 1:
        half = len(x) // 2
        summed = x[:half] + x[half : 2 * half]
        if len(x) % 2:
            summed[0] = summed[0] + x[-1]
        x = summed
    found: np.ndarray = x[0]
    return found


def nearest_d(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest point of D_n to each column of ``[..., n, blocks]``, and its squared distance.

    D_n is the integer vectors of even sum: round every coordinate; where the sum is odd, move the coordinate
    that rounding hurt most (see ``_hurt``) to its second nearest integer.
    """
    point, rest = _rounded(z)
    odd = point.sum(axis=-2) % 2
    found = _moved(point, rest, _hurt(rest).argmax(axis=-2), odd)
    return found, tree_sum((z - found) ** 2, -2)


def nearest_e8(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest points of E8 = D8 u (D8 + 1/2) to ``[..., 8, blocks]``, and their squared distances.

    The integer coset wins a tie. Rounding to halves moves a coordinate by 1/2 less what rounding to integers moves it
    by, the other way.
    """
    point, rest = _rounded(z)
    hurt = _hurt(rest)
    size = hurt.view(np.float32) if z.dtype == np.float32 else hurt
    square = tree_sum(rest * rest, -2)
    side = np.where(np.signbit(rest), -1, 1).astype(z.dtype)
    halves = point + side / 2
    odd, odd_half = point.sum(axis=-2) % 2, (halves - 0.5).astype(z.dtype).sum(axis=-2) % 2
    whole = square + odd * (1 - 2 * size.max(axis=-2))
    half = square + (2 - tree_sum(size, -2)) + odd_half * (2 * size.min(axis=-2))
    take_half = half < whole
    found = np.where(
        take_half[..., None, :],
        _moved(halves, -rest, hurt.argmin(axis=-2), odd_half),
        _moved(point, rest, hurt.argmax(axis=-2), odd),
    )
    return found, np.where(take_half, half, whole)


def _rounded(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Never -0: the sign of what is left says to which side a point moves.
    point = np.rint(z) + z.dtype.type(0)
    return point, z - point


def _hurt(rest: np.ndarray) -> np.ndarray:
    """Return what rounding took away, without its sign; of float32 as bits, whose last three name the coordinate.

    So no two coordinates of a block are equal, and there is one that rounding hurt most and one that it hurt least.
    """
    if rest.dtype != np.float32:
        return np.asarray(np.abs(rest))
    number = np.arange(rest.shape[-2] - 1, -1, -1, dtype=np.uint32)[:, None]
    hurt: np.ndarray = (rest.view(np.uint32) & np.uint32(0x7FFFFFF8)) | number
    return hurt


def _moved(point: np.ndarray, rest: np.ndarray, worst: np.ndarray, odd: np.ndarray) -> np.ndarray:
    """If the sum is odd, move the worst coordinate by 1 towards the point that was rounded."""
    chosen = np.arange(rest.shape[-2])[:, None] == worst[..., None, :]
    step = np.where(np.signbit(rest), -1, 1).astype(point.dtype)
    moved: np.ndarray = point + chosen * odd[..., None, :] * step
    return moved
