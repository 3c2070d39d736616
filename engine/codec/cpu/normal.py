"""Normalises and rotates vectors in NumPy: the numbers of :mod:``engine.codec.hadamard``, bit for bit."""

import numpy as np

from engine.codec import hadamard
from engine.codec.cpu.lattice import fold
from engine.codec.spec import LARGEST
from engine.mx import mx

LEAST = -100  # the exponent of what is smaller


def normalised(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors of any float32 ``[n, dim]``, NaN being 0, rotated and over a power of two near their largest.

    They are ``[dim, n]``, and the powers' exponents ``[n]``.
    """
    y = np.ascontiguousarray(x.T)
    largest = fold(np.maximum, np.abs(y))
    if not (largest <= LARGEST).all():
        y = np.clip(np.where(np.isnan(y), np.float32(0), y), np.float32(-LARGEST), np.float32(LARGEST))
        largest = fold(np.maximum, np.abs(y))
    exponents = np.maximum((largest.view(np.int32) >> 23) - 127, LEAST)
    y *= np.ldexp(np.float32(1), -exponents)
    return _rotated(y), exponents


def _rotated(y: np.ndarray) -> np.ndarray:
    """Return the Hadamard rotation of ``[dim, n]``, whose content is lost."""
    dim, n = y.shape
    if dim & (dim - 1):
        return np.asarray(hadamard.rotate(mx.array(y.T))).T
    other, half = np.empty_like(y), 1
    while half < dim:
        pairs, sums = (z.reshape(-1, 2, half, n) for z in (y, other))
        np.add(pairs[:, 0], pairs[:, 1], out=sums[:, 0])
        np.subtract(pairs[:, 0], pairs[:, 1], out=sums[:, 1])
        y, other, half = other, y, 2 * half
    y *= np.float32(1 / np.sqrt(dim))
    return y
