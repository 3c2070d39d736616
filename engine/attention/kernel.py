"""Decode attention in one kernel, from packed rows to the weighted sum of values. No decoded values are stored.

The tokens are split over groups of threads. Each group returns its largest score, the sum of its weights and
its weighted values, and the parts are joined here. The kernel is used if the default device has a kernel
language, the mask is None or causal, and there are few query rows. Otherwise
``engine.attention.packed.attend`` computes attention.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from engine.attention.kernel_source import THREADS, Shape, header, source
from engine.attention.views import PackedView
from engine.codec.voronoi import VoronoiCodec
from engine.mx import mx

MOST_ROWS = 64
TOKENS_A_SPLIT = 1024

Launch = Callable[..., tuple[mx.array, mx.array]]


def backend() -> str | None:
    """Return ``metal`` or ``cuda`` if the default device runs such kernels, else None."""
    if mx.default_device() == mx.Device(mx.cpu):
        return None
    if mx.metal.is_available():
        return "metal"
    return "cuda" if hasattr(mx, "cuda") and mx.cuda.is_available() else None


def fits(queries: mx.array, keys: PackedView, values: PackedView, mask: mx.array | str | None) -> bool:
    """Return whether the kernel supports these arguments of ``attend``."""
    few, shape = queries.shape[2] <= MOST_ROWS, _shape(keys, values)
    plain = mask is None or (isinstance(mask, str) and mask == "causal")
    return few and plain and keys.shape[2] > 0 and shape is not None and shape.fits


def attend_rows(
    queries: mx.array,
    keys: PackedView,
    values: PackedView,
    *,
    causal: bool,
    launch: Launch | None = None,
) -> mx.array:
    """Return weighted values, rotated, float32 ``[batch, query heads, rows, value dim]``.

    The queries are rotated and scaled, float32 ``[batch, query heads, rows, dim]``. With ``causal``, a row sees only
    the positions up to its own, the rows being the last ones. ``launch`` runs the kernel; None takes the default
    device's.
    """
    batch, heads, rows, dim = queries.shape
    kv_heads, length = keys.shape[1:3]
    splits = -(-length // TOKENS_A_SPLIT)
    sizes = mx.array([length, splits, heads // kv_heads * rows, rows, int(causal), 0, 0, 0], dtype=mx.int32)
    shape = _shape(keys, values)
    assert shape is not None  # noqa: S101 - `fits` comes first
    launch = launch or _launcher(backend(), shape)
    flat = mx.contiguous(queries.reshape(-1, dim))
    parts, stats = launch(flat, mx.contiguous(keys.rows), mx.contiguous(values.rows), sizes)
    return join(parts, stats).reshape(batch, heads, rows, shape.value_dim)


def join(parts: mx.array, stats: mx.array) -> mx.array:
    """Join splits: weighted values ``[rows, splits, dim]``, largest scores and sums ``[rows, splits, 2]``."""
    largest, total = stats[..., :1], stats[..., 1:]
    fade = mx.exp(largest - largest.max(axis=1, keepdims=True))
    return (parts * fade).sum(axis=1) / mx.maximum((total * fade).sum(axis=1), 1e-37)


@cache
def _launcher(language: str, shape: Shape) -> Launch:
    make: Callable[..., Any] = mx.fast.metal_kernel if language == "metal" else mx.fast.cuda_kernel
    kernel = make(
        name=shape.name,
        input_names=["queries", "keys", "values", "sizes"],
        output_names=["out_values", "out_stats"],
        source=source(language),
        header=header(language, shape),
    )

    def launch(
        queries: mx.array, keys: mx.array, values: mx.array, sizes: mx.array
    ) -> tuple[mx.array, mx.array]:
        rows, splits = queries.shape[0], -(-keys.shape[2] // TOKENS_A_SPLIT)
        out_values, out_stats = kernel(
            inputs=[queries, keys, values, sizes],
            grid=(THREADS * splits, rows, 1),
            threadgroup=(THREADS, 1, 1),
            output_shapes=[(rows, splits, shape.value_dim), (rows, splits, 2)],
            output_dtypes=[mx.float32, mx.float32],
        )
        return out_values, out_stats

    return launch


def _shape(keys: PackedView, values: PackedView) -> Shape | None:
    """Return the constants to compile the kernel with; None unless both codecs are Voronoi codes of the same width."""
    widths = {x.codec.layout.bits if isinstance(x.codec, VoronoiCodec) else None for x in (keys, values)}
    bits = widths.pop()
    return None if widths or bits is None else Shape(keys.codec.dim, values.codec.dim, bits)
