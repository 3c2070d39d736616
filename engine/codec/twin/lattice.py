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
    that rounding hurt most (the first of them) to its second nearest integer.
    """
    point = np.rint(z)
    rest = z - point
    hurt = np.abs(rest)
    odd = point.sum(axis=-2) % 2
    worst = hurt.argmax(axis=-2)[..., None, :]
    chosen = np.arange(z.shape[-2])[:, None] == worst
    step = np.where(rest >= 0, 1, -1).astype(np.float32)
    distance = tree_sum(rest * rest, -2) + odd * (1 - 2 * hurt.max(axis=-2))
    return point + chosen * odd[..., None, :] * step, distance


def nearest_e8(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest points of E8 = D8 u (D8 + 1/2) to ``[..., 8, blocks]``, and their squared distances.

    The integer coset wins a tie.
    """
    whole, far_whole = nearest_d(z)
    half, far_half = nearest_d(z - np.float32(0.5))
    take_half = far_half < far_whole
    point = np.where(take_half[..., None, :], half + np.float32(0.5), whole)
    return point, np.where(take_half, far_half, far_whole)
