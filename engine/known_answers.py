"""Small computations on MLX's default device whose results are known.

Two of them were wrong in released versions of MLX on Metal: ``dequantize`` of a sliced view
(https://github.com/ml-explore/mlx/issues/4370) and ``quantized_matmul`` of few rows with keys that several query heads
share (https://github.com/ml-explore/mlx/issues/3480). mlx-lm's quantized cache, the baseline of every comparison of
caches, relies on both.
"""

import math

from engine.mx import mx, number

GROUP = 32
KEY_HEADS, QUERY_HEADS = 2, 8
CAPACITY, TOKENS, DIM = 48, 40, 64
ROWS = (1, 4, 9)
# Tolerances for rounding on any device (with TF32 products). The known faults are 10 or more.
LIMITS = {
    "hadamard_error": 1e-3,
    "quantize_error": 0.25,
    "sliced_dequantize_error": 1e-3,
    "shared_heads_error": 0.25,
}


def check() -> dict[str, object]:
    """Compute all known answers; return the errors, and in ``ok`` whether rounding explains all of them."""
    exact = _matmul_is_exact()
    row = mx.arange(128, dtype=mx.float32)[None]
    packed = mx.quantize(row, group_size=64, bits=8)
    errors = {
        "hadamard_error": _difference(mx.hadamard_transform(mx.hadamard_transform(row)), row),
        "quantize_error": _difference(mx.dequantize(*packed, group_size=64, bits=8), row),
        "sliced_dequantize_error": sliced_dequantize_error(),
        "shared_heads_error": shared_heads_error(),
    }
    ok = exact and all(error < LIMITS[name] for name, error in errors.items())
    return {"matmul_exact": exact, **errors, "ok": ok}


def sliced_dequantize_error() -> float:
    """Return how far a dequantized slice differs from the slice of the dequantized whole; NaN counts as infinity."""
    worst = 0.0
    for bits in (4, 8):
        codes, scales, biases = mx.quantize(_waves(KEY_HEADS, CAPACITY, DIM), group_size=GROUP, bits=bits)
        whole = mx.dequantize(codes, scales, biases, group_size=GROUP, bits=bits)[:, :TOKENS]
        codes, scales, biases = (part[:, :TOKENS] for part in (codes, scales, biases))
        view = mx.dequantize(codes, scales, biases, group_size=GROUP, bits=bits)
        worst = max(worst, _difference(view, whole))
    return worst


def shared_heads_error() -> float:
    """Return the error of attention's two products over quantized vectors that query heads share, for few rows."""
    stored = mx.quantize(_waves(1, KEY_HEADS, CAPACITY, DIM), group_size=GROUP, bits=4)
    dense = mx.dequantize(*stored, group_size=GROUP, bits=4)[:, :, None, :TOKENS]
    codes, scales, biases = (part[:, :, None, :TOKENS] for part in stored)
    worst = 0.0
    for rows in ROWS:
        queries = _waves(1, KEY_HEADS, QUERY_HEADS // KEY_HEADS, rows, DIM)
        weights = _waves(1, KEY_HEADS, QUERY_HEADS // KEY_HEADS, rows, TOKENS)
        for x, transpose, expected in (
            (queries, True, queries @ dense.swapaxes(-1, -2)),
            (weights, False, weights @ dense),
        ):
            product = mx.quantized_matmul(x, codes, scales, biases, transpose, GROUP, 4)
            worst = max(worst, _difference(product, expected))
    return worst


def _matmul_is_exact() -> bool:
    size = 64
    a = mx.arange(size * size).reshape(size, size) % 7
    product = (a.astype(mx.float32) @ mx.eye(size) * 2).astype(mx.int32)
    return bool(mx.array_equal(product, (a * 2).astype(mx.int32)).item())


def _waves(*shape: int) -> mx.array:
    """Return float32 values within 3 that look random and are the same everywhere, but for their last bits."""
    numbers = mx.arange(math.prod(shape), dtype=mx.float32).reshape(shape)
    return 3 * mx.sin(numbers * 1.7 + 0.3)


def _difference(a: mx.array, b: mx.array) -> float:
    worst = number(mx.abs(a - b).max())
    return worst if math.isfinite(worst) else math.inf
