"""The encoder's choices: a scale for the vector, a beta for each block, a codeword near each block.

A block's error is smallest where its scale is as fine as the region allows, and whether the region holds it
is a matter of luck at any one scale; so many scales are tried, and the one with the smallest total error is
taken. What is tried is the encoder's own affair (:data:`engine.codec.spec.EFFORTS`): a row means the same
whoever wrote it.
"""

import math

from engine.codec.cosets import inside
from engine.codec.lattice import nearest_e8, tree_sum
from engine.codec.scales import scale_of_square, step
from engine.codec.spec import BETA_GAP, OCTAVE, Layout, Search
from engine.mx import mx

OUTSIDE = 2.0**60  # added to the squared distance of a block that has no codeword near it


def best_points(z: mx.array, q: int, shrinks: tuple[float, ...]) -> tuple[mx.array, mx.array]:
    """Return a codeword near each column of ``[n, 8, blocks]`` and its squared distance ``[n, 1, blocks]``.

    The nearest point of E8 will do where it is a codeword; else the points near the shrunk column are tried.
    """
    point, far = nearest_e8(z)
    far = far + OUTSIDE * (1 - inside(point, q))
    for shrink in shrinks:
        other, _ = nearest_e8(z * shrink)
        gap = z - other
        far_other = tree_sum(gap * gap, -2) + OUTSIDE * (1 - inside(other, q))
        closer = (far_other < far).astype(mx.float32)
        point = point + closer * (other - point)
        far = mx.minimum(far, far_other)
    return point, far


def choose(y: mx.array, layout: Layout, search: Search) -> tuple[mx.array, mx.array, mx.array]:
    """Return the scale ``[n, 1]`` and the beta bits ``[n, blocks]``, int32, and the codewords of ``y``.

    Args:
        y: rotated vectors in blocks, float32 ``[n, 8, blocks]``, of ordinary size (energy from 2^-40 to
            2^40).
        layout: dimensions and q.
        search: what to try; every scale is tried at once, so memory is n times :func:`evaluations` vectors.
    """
    energies = tree_sum(y * y, -2)
    mean = tree_sum(energies, -1)[:, 0] * (1 / layout.dim)
    reach = BETA_GAP // search.stride
    grid = search.count + reach
    usual = scale_of_square(mean) - OCTAVE * layout.bits + search.first + search.stride * mx.arange(grid)
    loud = safe_scale(energies.max(axis=-1), layout.q) + mx.array([-2 * BETA_GAP, -BETA_GAP, 0])
    scales = mx.concatenate([usual, loud], axis=-1)
    errors = _errors(y, scales, layout.q, search.shrinks)

    fine = mx.concatenate([errors[:, : search.count], errors[:, grid:-1]], axis=1)
    coarse = mx.concatenate([errors[:, reach:grid], errors[:, grid + 1 :]], axis=1)
    totals = tree_sum(mx.minimum(fine, coarse), -1)
    best = mx.argmin(totals, axis=1, keepdims=True)
    scales = mx.concatenate([scales[:, : search.count], scales[:, grid:-1]], axis=1)
    scale = mx.take_along_axis(scales, best[:, 0], axis=1)
    beta = mx.take_along_axis((coarse < fine).astype(mx.int32), best, axis=1)[:, 0]
    points, _ = best_points(y * step(-(scale + BETA_GAP * beta))[:, None], layout.q, search.shrinks)
    return scale, beta, points


def evaluations(search: Search) -> int:
    """Return how many scales the encoder tries for one vector."""
    return search.count + BETA_GAP // search.stride + 3


def safe_scale(largest: mx.array, q: int) -> mx.array:
    """Return a scale at which a block of this squared norm surely has a codeword near it, int32.

    The cell's inscribed sphere has radius q / sqrt 2, and a nearest point of E8 is at most 1 away.
    """
    margin = math.ceil(-OCTAVE * math.log2(q / math.sqrt(2) - 1.1)) + 1
    return scale_of_square(mx.maximum(largest, 2.0**-80)) + margin


def _errors(y: mx.array, scales: mx.array, q: int, shrinks: tuple[float, ...]) -> mx.array:
    """Return the squared error of every block at every scale ``[n, m]``, float32 ``[n, m, blocks]``."""
    n, m = scales.shape
    z = (y[:, None] * step(-scales)[:, :, None, None]).reshape(n * m, *y.shape[1:])
    _, far = best_points(z, q, shrinks)
    unit = step(scales)
    return far.reshape(n, m, -1) * (unit * unit)[:, :, None]
