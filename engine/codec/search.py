"""The encoder's choices: a scale for the vector, a beta for each block, a codeword near each block.

A block's error is smallest if its scale is as fine as the shaping region allows. Whether the region contains
the block at a given scale is a matter of luck. So many scales are tried, and the one with the smallest total
error is used. The choice of trials (``engine.codec.spec.EFFORTS``) does not affect the meaning of a row.
"""

from typing import NamedTuple

from engine.codec.cosets import at_wall, inside
from engine.codec.lattice import nearest_e8, tree_sum, two_largest
from engine.codec.scales import scale_of_square, step
from engine.codec.spec import BETA_GAP, LIMIT, OCTAVE, Guess, Layout, Search, safe_margin
from engine.mx import mx

COLUMNS = 2048  # blocks (of one or several scales) that are tried together
OUTSIDE = 2.0**60  # the squared distance of a block that has no codeword near it
NEVER = 2.0**100  # an error larger than any real one


def best_points(z: mx.array, q: int, walls: int) -> tuple[mx.array, mx.array, mx.array]:
    """Return a codeword near each column of ``[8, blocks]``, its squared distance, and whether the nearest point fits.

    The latter two are ``[1, blocks]``; the last one is true if the nearest point of E8 is a codeword. Otherwise, the
    column moves onto the wall that the point is behind, and from there again, until the point nearest to it fits.
    """
    point, far = nearest_e8(z)
    fits = inside(point, q) > 0
    far = mx.where(fits, far, OUTSIDE)
    if walls:
        small = mx.abs(z).max(axis=-2, keepdims=True) < LIMIT
        near, last = z, point
        for _ in range(walls):
            near = at_wall(near, last, q)
            last, _ = nearest_e8(near)
            gap = z - last
            done = small & (far == OUTSIDE) & (inside(last, q) > 0)
            point = mx.where(done, last, point)
            far = mx.where(done, tree_sum(gap * gap, -2), far)
    return point, far, fits


def choose(y: mx.array, layout: Layout, search: Search) -> tuple[mx.array, mx.array, mx.array]:
    """Return the scale ``[1, n]`` and the beta bits ``[blocks, n]``, int32, and the codewords of ``y``.

    ``y`` is float32 ``[8, blocks, n]``: ``n`` rotated vectors with an energy between 2^-40 and 2^40. They are on the
    last axis, so that all operations run over long rows.
    """
    energies = tree_sum(y * y, 0)[0]
    energy = tree_sum(energies, 0)
    mean = energy * (1 / layout.dim)
    finest = scale_of_square(mean) - OCTAVE * layout.bits + search.first
    loudest = mx.maximum(energies.max(axis=0, keepdims=True), 2.0**-80)
    safe = scale_of_square(loudest) + safe_margin(layout.q)
    if search.guess:
        return _choose_guessing(y, (finest, safe, energy), layout, search, search.guess)
    reach = BETA_GAP // search.stride
    grid = search.count + reach
    usual = finest + search.stride * mx.arange(grid)[:, None]
    loud = safe + mx.array([-2 * BETA_GAP, -BETA_GAP, 0])[:, None]
    scales = mx.concatenate([usual, loud])
    _, errors = _tried(y, scales, layout.q, search.walls)

    fine = mx.concatenate([errors[: search.count], errors[grid:-1]])
    coarse = mx.concatenate([errors[reach:grid], errors[grid + 1 :]])
    best = mx.argmin(tree_sum(mx.minimum(fine, coarse), 1)[:, 0], axis=0, keepdims=True)
    scales = mx.concatenate([scales[: search.count], scales[grid:-1]])
    scale = mx.take_along_axis(scales, best, axis=0)
    beta = mx.take_along_axis((coarse < fine).astype(mx.int32), best[:, None], axis=0)[0]
    z = y * step(-(scale + BETA_GAP * beta))
    points, *_ = best_points(z.reshape(8, -1), layout.q, search.walls)
    return scale, beta, points.reshape(y.shape)


def _choose_guessing(
    y: mx.array, of_vectors: tuple[mx.array, mx.array, mx.array], layout: Layout, search: Search, guess: Guess
) -> tuple[mx.array, mx.array, mx.array]:
    finest, safe, energy = of_vectors
    product = largest_product(y) * step(-finest)
    likely = search.stride * _guessed(product, layout, search)
    best: _Choice | None = None
    for offset in guess.offsets:
        above = likely + offset
        loud = product > (layout.q + guess.near) * step(above)
        best = _better(best, _mixed(y, finest + above, loud, layout.q, search.walls))
        (y,) = mx.depends(
            [y], [best.points]
        )  # the next trial waits: MLX would hold the arrays of all trials at once
    (points,), errors = _tried(y, safe, layout.q, 0)
    assert best is not None  # noqa: S101 - every guess has offsets
    error = mx.where(best.error > guess.spare * energy, tree_sum(errors[0], 0), NEVER)
    best = _better(best, _Choice(safe - BETA_GAP, mx.ones(errors[0].shape, mx.int32), points, error))
    return best.scale, best.beta, best.points


class _Choice(NamedTuple):
    """For each vector, the best of the scales tried so far."""

    scale: mx.array  # int32 `[1, n]`
    beta: mx.array  # int32 `[blocks, n]`
    points: mx.array  # codewords, float32 `[8, blocks, n]`
    error: mx.array  # squared, `[1, n]`


def _mixed(y: mx.array, scale: mx.array, loud: mx.array, q: int, walls: int) -> _Choice:
    """Code at a scale ``[1, n]``; ``loud`` blocks, bool ``[blocks, n]``, have their beta bits set.

    Another block whose nearest point is outside sets its bit if that errs less.
    """
    fine, coarse = step(scale), step(scale + BETA_GAP)
    inverse, coarse_inverse = step(-scale), step(-scale - BETA_GAP)

    def coded(unit: mx.array) -> list[mx.array]:
        points, far, fits = best_points((y * unit).reshape(8, -1), q, walls)
        return [points.reshape(y.shape), far.reshape(loud.shape), fits.reshape(loud.shape)]

    points, far, fits = coded(mx.where(loud, coarse_inverse, inverse))
    with_beta, far_beta, _ = coded(coarse_inverse)
    errors = far * mx.where(loud, coarse * coarse, fine * fine)
    others = far_beta * (coarse * coarse)
    change = ~loud & ~fits & (others < errors)
    errors = mx.where(change, others, errors)
    beta = (loud | change).astype(mx.int32)
    return _Choice(scale, beta, mx.where(change, with_beta, points), tree_sum(errors, 0))


def _better(first: _Choice | None, second: _Choice) -> _Choice:
    """Return the better choice for each vector, the first if they are equal."""
    if first is None:
        return second
    take = (second.error < first.error).astype(mx.int32)
    points = first.points + take.astype(mx.float32) * (second.points - first.points)
    scale, beta = (a + take * (b - a) for a, b in zip(first[:2], second[:2], strict=True))
    return _Choice(scale, beta, points, mx.minimum(first.error, second.error))


def _guessed(product: mx.array, layout: Layout, search: Search) -> mx.array:
    """Return each vector's likeliest scale of the grid, int32 ``[1, n]``, from the largest products over the finest."""
    errors = []
    for top, least in search.judged(layout.q):
        rest = mx.maximum(product, top) - top
        errors.append(rest * rest + least)
    pairs = zip(errors[: search.count], errors[-search.count :], strict=True)
    expected = mx.concatenate([tree_sum(mx.minimum(fine, coarse), 0) for fine, coarse in pairs])
    return mx.argmin(expected, axis=0, keepdims=True).astype(mx.int32)


def largest_product(y: mx.array) -> mx.array:
    """Return each block's largest inner product with a minimal vector of E8, ``[blocks, n]``, of ``[8, blocks, n]``."""
    size = mx.abs(y)
    flips = (y.view(mx.uint32) >> 31).sum(axis=0)
    eight = tree_sum(size, 0)[0] * 0.5 - (flips & 1).astype(mx.float32) * size.min(axis=0)
    return mx.maximum(two_largest(size, 0), eight)[0]


def _tried(y: mx.array, scales: mx.array, q: int, walls: int) -> tuple[list[mx.array], mx.array]:
    """Return every block's codeword at each scale ``[m, n]``, m times ``[8, blocks, n]``, and its squared error.

    Few vectors are tried at several scales together, since an operation takes MLX microseconds however small it is. Of
    many vectors, the arrays of all scales together would not stay in a core's cache.
    """
    blocks, n = y.shape[1:]
    together = max(1, COLUMNS // (blocks * n))
    tried, errors = [], []
    for some in mx.split(scales, [*range(together, len(scales), together)]):
        z = y[:, None] * step(-some)[:, None]
        points, far, _ = best_points(z.reshape(8, -1), q, walls)
        tried += [part.reshape(y.shape) for part in mx.split(points.reshape(z.shape), len(some), axis=1)]
        errors.append(far.reshape(len(some), blocks, n))
        (y,) = mx.depends([y], [points, far])
    unit = step(scales)
    return tried, mx.concatenate(errors) * (unit * unit)[:, None]
