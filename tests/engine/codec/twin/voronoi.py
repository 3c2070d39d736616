"""The Voronoi code in NumPy: the definition that the MLX codec is tested against.

Source of the construction: J. H. Conway and N. J. A. Sloane, "A fast encoding method for lattice codes and
quantizers", IEEE Transactions on Information Theory 29 (1983): the cosets of q L in L, each named by its
point in the Voronoi cell of q L. Several scales ("betas") for the blocks of one vector: S. Savkin et al.,
"NestQuant" (2025).
"""

import numpy as np

from engine.codec.spec import (
    BETA_GAP,
    EFFORTS,
    LARGEST,
    OCTAVE,
    SCALE_MAX,
    SCALE_MIN,
    SCALE_ZERO,
    SHIFT,
    STEPS,
    UNIT,
    Layout,
    Search,
)
from tests.engine.codec.twin.hadamard import rotate, unrotate
from tests.engine.codec.twin.lattice import nearest_e8, tree_sum

OUTSIDE = np.float32(2.0**60)
NEVER = np.float32(2.0**100)
_SHIFT = (np.array(SHIFT, np.float32) / UNIT)[:, None]


def step(k: np.ndarray) -> np.ndarray:
    """Return 2^(k / 32), float32."""
    found: np.ndarray = np.ldexp(np.array(STEPS, np.float32)[k % OCTAVE], k // OCTAVE)
    return found


def scale_of_square(square: np.ndarray) -> np.ndarray:
    """Return the largest k with 2^(k / 32) <= sqrt(square), for positive normal float32."""
    bits = square.astype(np.float32).view(np.int32)
    mantissa = ((bits & 0x7FFFFF) | 0x3F800000).view(np.float32)
    marks = np.array([2.0 ** (j / 16) for j in range(1, 16)], np.float32)
    found: np.ndarray = 16 * ((bits >> 23) - 127) + (mantissa[..., None] >= marks).sum(axis=-1)
    return found


def inside(point: np.ndarray, q: int) -> np.ndarray:
    """Return whether each column of ``[..., 8, blocks]`` lies in the shifted Voronoi cell of q E8.

    The cell is bounded by the 240 minimal vectors: the inner product with the worst of (+-1, +-1, 0^6) and of
    (+-1/2)^8 with an even number of minus signs has to stay below q.
    """
    moved = point - _SHIFT
    size = np.sort(np.abs(moved), axis=-2)
    flips = (moved < 0).sum(axis=-2) % 2
    pair = size[..., -1, :] + size[..., -2, :]
    eight = size.sum(axis=-2) / 2 - flips * size[..., 0, :]
    found: np.ndarray = np.maximum(pair, eight) < q
    return found


def best_points(z: np.ndarray, q: int, shrinks: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return codewords near the columns of ``[..., 8, blocks]`` and the distance squared, OUTSIDE if none."""
    point, far = nearest_e8(z)
    fits = inside(point, q)
    far = far + OUTSIDE * ~fits
    for shrink in shrinks:
        other, _ = nearest_e8(z * np.float32(shrink))
        gap = z - other
        far_other = tree_sum(gap * gap, -2) + OUTSIDE * ~inside(other, q)
        closer = ~fits & (far_other < far)
        point = np.where(closer[..., None, :], other, point)
        far = np.where(closer, far_other, far)
    return point, far


def label(point: np.ndarray, bits: int) -> np.ndarray:
    """Return the fields of each column's coset of q E8, uint8 ``[..., 8, blocks]``."""
    q = 1 << bits
    doubled = np.rint(2 * point).astype(np.int64)
    parity = doubled & 1
    whole = (doubled - parity) >> 1
    glue = whole[..., :1, :] & (q // 2)  # adding q (1/2)^8 clears the first coordinate's top bit
    whole = whole + glue
    wraps = (whole[..., :7, :] >> bits).sum(axis=-2)  # subtracting q times an integer vector of even sum
    fields = whole & (q - 1)
    fields[..., 0, :] |= parity[..., 0, :] << (bits - 1)
    fields[..., 7, :] = ((whole[..., 7, :] + q * wraps) >> 1) & (q - 1)
    found: np.ndarray = fields.astype(np.uint8)
    return found


def point_of(fields: np.ndarray, bits: int) -> np.ndarray:
    """Return the codeword of each column of fields: the coset's point in the shifted Voronoi cell of q E8."""
    q = 1 << bits
    whole = fields.astype(np.int64)
    parity = whole[..., :1, :] >> (bits - 1)
    whole[..., 0, :] &= q // 2 - 1
    whole[..., 7, :] = 2 * whole[..., 7, :] + whole[..., :7, :].sum(axis=-2) % 2
    some = whole + parity / 2
    # float64: nearest_e8 sees q and SHIFT as exact binary fractions, and no tie can occur.
    nearest, _ = nearest_e8((some - _SHIFT) / q)
    found: np.ndarray = (some - q * nearest).astype(np.float32)
    return found


def encode(x: np.ndarray, bits: int, effort: str = "normal") -> np.ndarray:
    """Return packed rows, uint8 ``[n, nbytes]``, of ``x``, ``[n, dim]``."""
    layout = Layout(x.shape[-1], bits)
    search = EFFORTS[effort][bits]
    y, exponent = _normalised(x)
    y = y.reshape(len(x), 8, layout.blocks)
    energy = tree_sum(tree_sum(y * y, -2), -1)
    zero = energy < np.float32(2.0**-40)
    mean = np.where(zero, np.float32(1), energy * np.float32(1 / layout.dim))
    first = scale_of_square(mean) - OCTAVE * bits + search.first

    def errors(k: np.ndarray, shrinks: tuple[float, ...] = search.shrinks) -> np.ndarray:
        _, far = best_points(y * step(-k)[:, None, None], layout.q, shrinks)
        found: np.ndarray = far * (step(k) * step(k))[:, None]
        return found

    def coarser(k: np.ndarray) -> np.ndarray:
        """Return the errors with the beta bits, which a block may not set whose nearest point fits without."""
        fits = inside(nearest_e8(y * step(-k)[:, None, None])[0], layout.q)
        return np.where(fits, NEVER, errors(k + BETA_GAP))

    best, best_k = np.full(len(x), np.inf, np.float32), first

    def pair(k: np.ndarray, fine: np.ndarray, coarse: np.ndarray) -> None:
        nonlocal best, best_k
        total = tree_sum(np.minimum(fine, coarse), -1)
        better = total < best
        best, best_k = np.where(better, total, best), np.where(better, k, best_k)

    safe = safe_scale(tree_sum(y * y, -2).max(axis=-1), layout.q)
    if search.guess:
        product = largest_product(y) * step(-first)[:, None]
        likely = first + search.stride * _guessed(product, layout, search)
        for offset in search.guess.offsets:
            pair(likely + offset, errors(likely + offset), coarser(likely + offset))
        spare = errors(safe, ())
        before = best
        poor = (best > np.float32(search.guess.spare) * energy)[:, None]
        pair(safe - BETA_GAP, np.full_like(spare, NEVER), np.where(poor, spare, NEVER))
        safer = (best < before)[:, None]
        fine = np.where(safer, NEVER, errors(best_k))
        coarse = np.where(safer, spare, coarser(best_k))
    else:
        reach = BETA_GAP // search.stride
        tried = [errors(first + i * search.stride) for i in range(search.count + reach)]
        for i in range(search.count):
            pair(first + i * search.stride, tried[i], tried[i + reach])
        three = [errors(safe + i) for i in (-2 * BETA_GAP, -BETA_GAP, 0)]
        pair(safe - 2 * BETA_GAP, three[0], three[1])
        pair(safe - BETA_GAP, three[1], three[2])
        fine, coarse = errors(best_k), errors(best_k + BETA_GAP)

    beta = coarse < fine
    k = best_k[:, None] + BETA_GAP * beta
    points, _ = best_points(y * step(-k)[:, None, :], layout.q, search.shrinks)
    scale = np.clip(best_k + OCTAVE * exponent, SCALE_MIN, SCALE_MAX)
    keep = ~zero[:, None, None]
    fields = label(points, bits) * keep
    return pack(np.where(zero, SCALE_ZERO, scale), beta & ~zero[:, None], fields, layout)


def _guessed(product: np.ndarray, layout: Layout, search: Search) -> np.ndarray:
    """Return which scale is the likeliest: each block misses its cell by its place on a ramp, linearly."""
    sums = [tree_sum(np.clip(product, *np.array(ramp, np.float32)), -1) for ramp in search.ramps(layout.q)]
    expected = [
        np.float32(constant)
        + np.float32(fine) * sums[i]
        + np.float32(coarse) * sums[i + BETA_GAP // search.stride]
        for i, (constant, fine, coarse) in enumerate(search.expectation(layout.q, layout.blocks))
    ]
    found: np.ndarray = np.argmin(expected, axis=0)
    return found


def largest_product(y: np.ndarray) -> np.ndarray:
    """Return each block's largest inner product with the 240 minimal vectors, ``[n, blocks]``."""
    size = np.sort(np.abs(y), axis=-2)
    odd = (y < 0).sum(axis=-2) % 2
    eight = tree_sum(np.abs(y), -2) * np.float32(0.5) - odd.astype(np.float32) * size[:, 0]
    found: np.ndarray = np.maximum(size[:, -1] + size[:, -2], eight)
    return found


def decode(rows: np.ndarray, dim: int, bits: int) -> np.ndarray:
    """Return float32 ``[n, dim]``."""
    return unrotate(decode_rotated(rows, dim, bits))


def decode_rotated(rows: np.ndarray, dim: int, bits: int) -> np.ndarray:
    """Return the vectors before the rotation is undone: codewords times their step, float32 ``[n, dim]``."""
    scale, beta, fields = unpack(rows, Layout(dim, bits))
    k = scale[:, None] + BETA_GAP * beta
    steps = np.where(
        scale[:, None] == SCALE_ZERO, np.float32(0), step(np.clip(k, SCALE_MIN, SCALE_MAX + BETA_GAP))
    )
    return (point_of(fields, bits) * steps[:, None, :]).reshape(len(rows), dim)


def safe_scale(largest: np.ndarray, q: int) -> np.ndarray:
    """Return a scale at which a block of this squared norm surely has a codeword near it.

    The cell's inscribed sphere has radius q / sqrt 2; a nearest point is at most 1 away.
    """
    margin = int(np.ceil(-OCTAVE * np.log2(q / np.sqrt(2) - 1.1))) + 1
    return scale_of_square(np.maximum(largest, np.float32(2.0**-80))) + margin


def pack(scale: np.ndarray, beta: np.ndarray, fields: np.ndarray, layout: Layout) -> np.ndarray:
    """Return rows of bytes of scales ``[n]``, beta bits ``[n, blocks]`` and fields ``[n, 8, blocks]``."""
    flat = fields.reshape(len(scale), layout.dim)
    parts = [
        scale.astype("<i2").view(np.uint8).reshape(-1, 2),
        np.packbits(beta, axis=-1, bitorder="little"),
    ]
    for width, low in layout.planes:
        values = (flat >> low) & ((1 << width) - 1)
        groups = values.reshape(len(flat), 8 // width, -1)
        shifts = (width * np.arange(8 // width))[:, None]
        parts.append((groups << shifts).sum(axis=1).astype(np.uint8))
    return np.concatenate(parts, axis=-1)


def unpack(rows: np.ndarray, layout: Layout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scales ``[n]``, beta bits ``[n, blocks]`` and fields ``[n, 8, blocks]``."""
    scale = np.ascontiguousarray(rows[:, :2]).view("<i2")[:, 0].astype(np.int64)
    at = 2 + layout.beta_bytes
    beta = np.unpackbits(rows[:, 2:at], axis=-1, bitorder="little", count=layout.blocks)
    flat = np.zeros((len(rows), layout.dim), np.uint8)
    for width, low in layout.planes:
        size = layout.dim * width // 8
        groups = [(rows[:, at : at + size] >> (width * i)) & ((1 << width) - 1) for i in range(8 // width)]
        flat |= np.concatenate(groups, axis=-1) << low
        at += size
    return scale, beta.astype(np.int64), flat.reshape(len(rows), 8, layout.blocks)


def _normalised(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rotated vectors divided by a power of two, and its exponent; NaN counts as 0."""
    clean = np.where(np.isnan(x), np.float32(0), x).astype(np.float32)
    clean = np.clip(clean, np.float32(-LARGEST), np.float32(LARGEST))
    largest = np.abs(clean).max(axis=-1)
    exponent = np.maximum((largest.view(np.int32) >> 23) - 127, -100)
    return rotate(clean * np.ldexp(np.float32(1), -exponent)[:, None]), exponent.astype(np.int64)
