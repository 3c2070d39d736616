"""The orthonormal Hadamard rotation that spreads a vector's energy evenly over its coordinates.

Sizes are ``m * 2^k`` with ``m`` one of 1, 12, 20 and 28, which covers head sizes 64, 80, 96, 112, 128, 256
and 512. The matrix is ``kron(H_m, S)`` with Sylvester's ``S``. For ``m`` = 20 and 28 it is not symmetric, so
its inverse is its transpose.
"""

from functools import cache

from engine import blas
from engine.codec.cpu.hadamard import factor
from engine.mx import mx

LEAST = 64  # the smallest size that is rotated by matrix products


def rotate(x: mx.array) -> mx.array:
    """Return ``H x`` along the last axis, float32. See ``factor`` for the possible sizes."""
    return mx.hadamard_transform(x.astype(mx.float32))


def rotate_quickly(x: mx.array) -> mx.array:
    """Return ``H x`` along the last axis, whose size is a power of two, with other rounding than ``rotate``.

    H is the Kronecker product of two Hadamard matrices. If the BLAS multiplies small matrices well, two products take
    a third of the time of MLX's transform. Each vector has a product of its own, so that its result does not depend on
    the number of vectors.
    """
    dim = x.shape[-1]
    if dim < LEAST or mx.default_device().type != mx.cpu or not blas.has_small_kernels():
        return rotate(x)
    inner = 1 << dim.bit_length() // 2
    parts = _transposed(dim // inner) @ x.astype(mx.float32).reshape(-1, dim // inner, inner)
    return (parts @ mx.broadcast_to(_transposed(inner), (len(parts), inner, inner))).reshape(x.shape)


def unrotate(y: mx.array) -> mx.array:
    """Return ``H^T y`` along the last axis, float32: undoes ``rotate``."""
    dim = y.shape[-1]
    m = factor(dim)
    y = y.astype(mx.float32)
    if m in {1, 12}:
        return mx.hadamard_transform(y)
    inner = dim // m
    parts = y.reshape(*y.shape[:-1], m, inner)
    if inner > 1:
        parts = mx.hadamard_transform(parts)
    return (_transposed(m) @ parts).reshape(y.shape)


@cache
def _transposed(m: int) -> mx.array:
    """Return the orthonormal ``H_m^T``; a transform of unit vectors gives its rows."""
    return mx.hadamard_transform(mx.eye(m))
