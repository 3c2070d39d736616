"""Scales, beta bits and fields to packed rows and back: :class:``engine.codec.spec.Layout`` in MLX."""

from engine.codec.spec import Layout
from engine.mx import mx


def pack(scale: mx.array, beta: mx.array, fields: mx.array, layout: Layout) -> mx.array:
    """Return rows, uint8 ``[n, nbytes]``.

    Scales are ``[1, n]``, beta bits ``[blocks, n]`` and fields ``[8, blocks, n]``, all int32.
    """
    n = scale.shape[1]
    low, high = scale & 0xFF, (scale >> 8) & 0xFF
    beta = mx.pad(beta, [(0, 8 * layout.beta_bytes - layout.blocks), (0, 0)])
    beta = (beta.reshape(layout.beta_bytes, 8, n) << mx.arange(8)[:, None]).sum(axis=1)
    parts = [low, high, beta]
    flat = fields.reshape(layout.dim, n).astype(mx.uint8)
    for width, lowest in layout.planes:
        groups = mx.split((flat >> lowest) & ((1 << width) - 1), 8 // width)
        plane = groups[0]
        for i, group in enumerate(groups[1:], 1):
            plane = plane | (group << (width * i))
        parts.append(plane)
    return mx.concatenate([part.astype(mx.uint8) for part in parts]).T


def unpack(rows: mx.array, layout: Layout) -> tuple[mx.array, mx.array, mx.array]:
    """Return scales int32 ``[n, 1]``, beta bits int32 ``[n, blocks]`` and fields int16 ``[n, 8, blocks]``."""
    n = rows.shape[0]
    at = 2 + layout.beta_bytes
    head = rows[:, :at].astype(mx.int32)
    scale = head[:, :1] | (head[:, 1:2] << 8)
    scale = scale - ((scale >> 15) << 16)
    beta = (head[:, 2:, None] >> mx.arange(8)) & 1
    beta = beta.reshape(n, 8 * layout.beta_bytes)[:, : layout.blocks]
    flat: mx.array | None = None
    for width, lowest in layout.planes:
        size = layout.dim * width // 8
        plane = rows[:, at : at + size]
        mask = (1 << width) - 1
        values = mx.concatenate([(plane >> (width * i)) & mask for i in range(8 // width)], axis=-1)
        flat = values << lowest if flat is None else flat | (values << lowest)
        at += size
    assert flat is not None  # noqa: S101 - every layout has planes
    return scale, beta, flat.astype(mx.int16).reshape(n, 8, layout.blocks)
