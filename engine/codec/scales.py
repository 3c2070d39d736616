"""Scales on a logarithmic grid: k stands for 2^(k / 32).

Both betas of a block share the grid, so the encoder's search can use every evaluation twice. The grid spans all
of float32 (half precision ends at 65504), and the codes of x and 2^n x differ only in the scale. Nothing here
calls ``log`` or ``exp``, whose last bits differ between machines.
"""

from engine.codec.spec import OCTAVE, STEPS
from engine.mx import mx

_MARKS = tuple(2.0 ** (j / 16) for j in range(1, 16))


def power_of_two(exponent: mx.array) -> mx.array:
    """Return 2^exponent, float32, for int32 exponents from -126 to 127."""
    return ((exponent + 127) << 23).view(mx.float32)


def exponent_of(x: mx.array) -> mx.array:
    """Return floor(log2(x)), int32, of non-negative float32; -127 for zero and subnormals."""
    return (x.view(mx.int32) >> 23) - 127


def step(k: mx.array) -> mx.array:
    """Return 2^(k / 32), float32, for int32 k."""
    return mx.array(STEPS, dtype=mx.float32)[k & (OCTAVE - 1)] * power_of_two(k >> 5)


def scale_of_square(square: mx.array) -> mx.array:
    """Return the largest k with 2^(k / 32) <= sqrt(square), int32, for positive normal float32."""
    mantissa = ((square.view(mx.int32) & 0x7FFFFF) | 0x3F800000).view(mx.float32)
    above = mantissa[..., None] >= mx.array(_MARKS, dtype=mx.float32)
    return 16 * exponent_of(square) + above.astype(mx.int32).sum(axis=-1)
