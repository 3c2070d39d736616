"""Encodes and decodes in a graph of MLX, for GPUs: the numbers of ``engine.codec.cpu``, bit for bit."""

from engine.codec import cosets, hadamard, search
from engine.codec.lattice import tree_sum
from engine.codec.scales import exponent_of, power_of_two, step
from engine.codec.spec import BETA_GAP, LARGEST, SCALE_MAX, SCALE_MIN, SCALE_ZERO, UNIT, Layout, Search
from engine.mx import mx

INFINITY_BITS = 0x7F800000  # infinity as float32; larger values are NaN


def encode(x: mx.array, layout: Layout, effort: Search) -> mx.array:
    """Return packed rows, uint8 ``[n, nbytes]``, of ``[n, dim]`` of any float type."""
    y, exponent = _normalised(x)
    y = y.T.reshape(8, layout.blocks, -1)
    energy = tree_sum(tree_sum(y * y, 0)[0], 0)
    alive = (energy >= 2.0**-40).astype(mx.int32)
    safe = y + (1 - alive).astype(mx.float32)  # for a zero vector, search with ones; the result is dropped
    scale, beta, points = search.choose(safe, layout, effort)
    scale = mx.clip(scale + 32 * exponent.T, SCALE_MIN, SCALE_MAX) * alive + SCALE_ZERO * (1 - alive)
    fields = cosets.label(points.reshape(8, -1), layout.bits).reshape(y.shape) * alive
    return pack(scale, beta * alive, fields, layout)


def decode(rows: mx.array, layout: Layout) -> mx.array:
    """Return vectors with the rotation still on, float32 ``[n, dim]``, of rows, uint8 ``[n, nbytes]``."""
    scale, beta, fields = unpack(rows, layout)
    points = cosets.point_of(fields, layout.bits).astype(mx.float32)
    alive = (scale != SCALE_ZERO).astype(mx.float32) * (1 / UNIT)
    steps = step(mx.clip(scale + BETA_GAP * beta, SCALE_MIN, SCALE_MAX + BETA_GAP)) * alive
    return (points * steps[:, None]).reshape(-1, layout.dim)


def _normalised(x: mx.array) -> tuple[mx.array, mx.array]:
    """Return rotated vectors divided by a power of two near their largest, and its exponent ``[n, 1]``."""
    bits = x.astype(mx.float32).view(mx.int32)
    number = ((bits & 0x7FFFFFFF) <= INFINITY_BITS).astype(mx.int32)
    clean = mx.clip((bits * number).view(mx.float32), -LARGEST, LARGEST)
    exponent = mx.maximum(exponent_of(mx.abs(clean).max(axis=-1, keepdims=True)), -100)
    return hadamard.rotate(clean * power_of_two(-exponent)), exponent


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
