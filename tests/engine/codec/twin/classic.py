"""The published codec in NumPy."""

import numpy as np

from tests.engine.codec.twin.hadamard import rotate
from tests.engine.codec.twin.lattice import nearest_d, nearest_e8

_EPS = np.float32(2.0**-23)


def roundtrip(x: np.ndarray, lattice: str, q_range: int) -> np.ndarray:
    """Return the reconstruction of ``[n, dim]``, float32."""
    x = x.astype(np.float32)
    norm = np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), _EPS)
    y = rotate(x / norm)
    scale = _half(np.maximum(np.abs(y).max(axis=-1, keepdims=True), _EPS)) / np.float32(q_range)
    size = {"d4": 4, "e8": 8}[lattice]
    blocks = (y / scale).reshape(len(x), -1, size).swapaxes(1, 2)
    point, _ = nearest_e8(blocks) if lattice == "e8" else nearest_d(blocks)
    clamped = np.clip(point, -q_range, q_range).swapaxes(1, 2).reshape(x.shape)
    found: np.ndarray = rotate((clamped * scale).astype(np.float32)) * _half(norm)
    return found


def _half(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)
