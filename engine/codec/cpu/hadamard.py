"""The Hadamard rotation in NumPy, with the rounding of MLX's ``hadamard_transform`` on a CPU.

The matrix of a size ``m * 2^k`` is ``kron(H_m, S)`` with Sylvester's ``S``: first butterflies over ``S``, then sums
over the rows of ``H_m`` in their order. ``engine.codec.hadamard`` rotates in MLX.
"""

from functools import cache

import numpy as np

from engine.errors import BadInput

FACTORS = {1: 1, 3: 12, 5: 20, 7: 28}  # m by the odd part of the size
LARGEST = 8192
# The rows of H_m as binary numbers, the first column in the highest bit: 1 stands for +1, 0 for -1.
_ROWS = {
    12: (
        0xBFF, 0x2AA, 0xEC3, 0x896, 0xFB0, 0xA25, 0xCEC, 0x989, 0xC3B, 0x962,
        0xF0E, 0xA58,
    ),
    20: (
        0x84336, 0x4238B, 0x211D5, 0x108FA, 0x0866D, 0x7C139, 0xBA29C, 0xD914E, 0xE88A7, 0xF0653,
        0x35A0F, 0x1AD17, 0x8D49B, 0xC685D, 0x6343E, 0x49A10, 0xA0D08, 0x54484, 0x2E042, 0x93021,
    ),
    28: (
        0x818694C, 0x41C14A6, 0x20E2A13, 0x1071549, 0x0838AE4, 0x041E532, 0x030D299, 0x3D019D2,
        0x1E82CA9, 0x8E43654, 0xC621B2A, 0xE210D95, 0xF00A6CA, 0x7807325, 0x5B3201E, 0xAC9900F,
        0x564C847, 0xAB24463, 0xD590271, 0x6AC8178, 0xB4640BC, 0x66B70C0, 0xB35B820, 0xD8ADC10,
        0x6D54E08, 0x37A8704, 0x9AD4382, 0xCD6A181,
    ),
}  # fmt: skip


def factor(dim: int) -> int:
    """Return ``m`` for a size ``m * 2^k``.

    Raises:
        BadInput: there is no such ``m``. (MLX itself accepts some sizes that it cannot transform.)
    """
    rest = dim
    while dim > 0 and rest % 2 == 0:
        rest //= 2
    m = FACTORS.get(rest, 0)
    if dim < 1 or dim > LARGEST or not m or dim % m:
        raise BadInput(
            f"there is no Hadamard rotation of size {dim}",
            f"sizes are m * 2^k up to {LARGEST} with m = 1, 12, 20 or 28",
        )
    return m


@cache
def signs(m: int) -> np.ndarray:
    """Return H_m, float32 ``[m, m]`` of 1 and -1, for m = 12, 20 or 28."""
    return np.array([[1 if row >> (m - 1 - i) & 1 else -1 for i in range(m)] for row in _ROWS[m]], np.float32)


def scale_of(dim: int) -> float:
    """Return the factor of a rotation of this size, a float32."""
    return float(np.float32(1 / np.sqrt(dim)))


def rotated(y: np.ndarray) -> np.ndarray:
    """Return the rotation along the first axis of ``[dim, n]``, whose content is lost."""
    dim, n = y.shape
    m = factor(dim)
    other, half = np.empty_like(y), 1
    while half < dim // m:
        pairs, sums = (z.reshape(-1, 2, half, n) for z in (y, other))
        np.add(pairs[:, 0], pairs[:, 1], out=sums[:, 0])
        np.subtract(pairs[:, 0], pairs[:, 1], out=sums[:, 1])
        y, other, half = other, y, 2 * half
    if m > 1:
        other[:] = 0
        totals = other.reshape(m, -1)
        for k, part in enumerate(y.reshape(m, -1)):
            totals += signs(m)[:, k : k + 1] * part
        y = other
    y *= np.float32(scale_of(dim))
    return y
