"""Encodes vectors in NumPy: the choices of ``engine.codec.search``, bit for bit.

NumPy passes over memory faster than MLX's CPU backend, and it can select the blocks that need more work than
others.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from engine.codec import spec
from engine.codec.cpu import hadamard
from engine.codec.cpu.lattice import at_wall, halved_sum, inside, largest_product, nearest
from engine.codec.spec import LIMIT, Guess, Layout, Search, safe_margin

# Blocks (of one or several scales) that are processed together, so that their arrays stay in a core's cache.
COLUMNS = 24576
GROUP = 4  # scales at which a vector is tried before the best of them is kept
OUTSIDE = np.float32(2.0**60)
# All steps from -126 octaves up.
_STEPS = np.ldexp(np.array(spec.STEPS, np.float32), np.arange(-126, 126)[:, None]).ravel()
_MARKS = np.array([2.0 ** (j / 16) for j in range(1, 16)], np.float32)


def encode(x: np.ndarray, layout: Layout, search: Search) -> np.ndarray:
    """Return packed rows, uint8 ``[n, nbytes]``, of any float32 ``[n, dim]``."""
    size = max(1, COLUMNS // layout.blocks)
    return np.concatenate([_encode(x[i : i + size], layout, search) for i in range(0, len(x), size)])


def _encode(x: np.ndarray, layout: Layout, search: Search) -> np.ndarray:
    y, exponents = _normalised(x)
    y = np.ascontiguousarray(y).reshape(8, layout.blocks, -1)
    energy = halved_sum(halved_sum(y * y))
    alive = energy >= np.float32(2.0**-40)
    if not alive.all():
        y += ~alive  # for a zero vector, search with ones; the result is dropped
    best = _choose(y, layout, search)
    scale = np.clip(best.scale + spec.OCTAVE * exponents, spec.SCALE_MIN, spec.SCALE_MAX)
    scale = np.where(alive, scale, spec.SCALE_ZERO)
    fields = _label(best.points, layout.bits) * alive
    return _pack(scale, best.beta & alive, fields, layout)


def _normalised(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rotate float32 vectors ``[n, dim]`` and divide them by a power of two near their largest value. NaN counts as 0.

    They are ``[dim, n]``, and the powers' exponents ``[n]``.
    """
    y = np.array(x.T, order="C")  # a copy even of a single vector: it is changed below
    largest = np.maximum.reduce(np.abs(y))
    if not (largest <= spec.LARGEST).all():
        limit = np.float32(spec.LARGEST)
        y = np.clip(np.where(np.isnan(y), np.float32(0), y), -limit, limit)
        largest = np.maximum.reduce(np.abs(y))
    exponents = np.maximum((largest.view(np.int32) >> 23) - 127, -100)
    y *= np.ldexp(np.float32(1), -exponents)
    return hadamard.rotated(y), exponents


class _Choice(NamedTuple):
    """For each vector, the best of the scales tried so far."""

    error: np.ndarray  # squared, float32 `[n]`
    scale: np.ndarray  # int32 `[n]`
    beta: np.ndarray  # bool `[blocks, n]`
    points: np.ndarray  # twice the codewords, int16 `[8, blocks, n]`


def _choose(y: np.ndarray, layout: Layout, search: Search) -> _Choice:
    energies = halved_sum(y * y)
    finest = (
        _scale_of_square(halved_sum(energies) * np.float32(1 / layout.dim))
        - spec.OCTAVE * layout.bits
        + search.first
    )
    loudest = energies.max(axis=0)
    safe = _scale_of_square(np.maximum(loudest, np.float32(2.0**-80))) + safe_margin(layout.q)
    lowest = finest + min(search.guess.offsets) if search.guess else finest
    clips = bool((np.sqrt(loudest) * steps_of(-lowest)).max() > 0.99 * LIMIT)
    blocks = _Blocks(y, layout.q, search.walls, clips=clips)
    if not search.guess:
        return _by_grid(blocks, finest, safe, search)
    best = _by_guess(blocks, finest, layout, search, search.guess)
    poor = np.flatnonzero(best.error > np.float32(search.guess.spare) * halved_sum(energies))
    return _with_spare(best, poor, y, safe, layout.q) if poor.size else best


def _with_spare(best: _Choice, poor: np.ndarray, y: np.ndarray, safe: np.ndarray, q: int) -> _Choice:
    """Try some of the vectors at a scale that surely has a codeword near each of their blocks."""
    some = poor if poor.size < safe.size else slice(None)
    y, safe = np.ascontiguousarray(y[..., some]), safe[some]
    points, errors = _Blocks(y, q, 0, clips=True).at(safe[None])
    beta = np.ones(errors[0].shape, bool)
    spare = _Choice(halved_sum(errors[0]), safe - spec.BETA_GAP, beta, points[:, 0])
    better = _better(_Choice(*(x[..., some] for x in best)), spare)
    for whole, part in zip(best, better, strict=True):
        whole[..., some] = part
    return best


def _by_guess(blocks: "_Blocks", finest: np.ndarray, layout: Layout, search: Search, guess: Guess) -> _Choice:
    product = largest_product(blocks.y) * steps_of(-finest)
    likely = search.stride * _guessed(product, layout, search).astype(np.int32)
    above = likely + np.array(guess.offsets, np.int32)[:, None]
    best: _Choice | None = None
    group = max(GROUP, blocks.together)
    for i in range(0, len(above), group):
        some = above[i : i + group]
        loud = product > (np.float32(layout.q + guess.near) * steps_of(some))[:, None]
        best = _best_of(best, finest + some, *blocks.mixed(finest + some, loud))
    assert best is not None  # noqa: S101 - every guess has offsets
    return best


def _best_of(
    best: _Choice | None, scales: np.ndarray, points: np.ndarray, errors: np.ndarray, beta: np.ndarray
) -> _Choice:
    """Return the best for each vector, the first if equal. A gather is slow, but few vectors need few calls."""
    totals = halved_sum(errors.swapaxes(0, 1))
    if len(scales) <= GROUP:
        for j, scale in enumerate(scales):
            best = _better(best, _Choice(totals[j], scale, beta[j], points[:, j]))
        assert best is not None  # noqa: S101 - there is at least one scale
        return best
    chosen, each = totals.argmin(axis=0), np.arange(totals.shape[1])
    at = (totals[chosen, each], scales[chosen, each], beta[chosen, :, each].T)
    return _better(best, _Choice(*at, np.ascontiguousarray(points[:, chosen, :, each].transpose(1, 2, 0))))


def _by_grid(blocks: "_Blocks", finest: np.ndarray, safe: np.ndarray, search: Search) -> _Choice:
    reach = spec.BETA_GAP // search.stride
    grid = search.count + reach
    usual = finest + search.stride * np.arange(grid, dtype=np.int32)[:, None]
    loud = safe + np.array([-2 * spec.BETA_GAP, -spec.BETA_GAP, 0], np.int32)[:, None]
    scales = np.concatenate([usual, loud])
    points: np.ndarray | None = None  # at all scales, if they are few enough to be kept
    if len(scales) <= blocks.together:
        points, errors = blocks.at(scales)
    else:
        starts = range(0, len(scales), blocks.together)
        errors = np.concatenate([blocks.at(scales[i : i + blocks.together])[1] for i in starts])
    fine = np.array([*range(search.count), grid, grid + 1])
    coarse = np.array([*range(reach, grid), grid + 1, grid + 2])
    # A vector's total at each pair of scales. A list of indices would copy, slices do not.
    slices = (errors[: search.count], errors[reach:grid]), (errors[grid:-1], errors[grid + 1 :])
    totals = np.concatenate([halved_sum(np.minimum(*pair).swapaxes(0, 1)) for pair in slices])
    best = totals.argmin(axis=0)
    vectors = np.arange(len(safe))
    fine, coarse = fine[best], coarse[best]
    beta = (errors[coarse, :, vectors] < errors[fine, :, vectors]).T
    scale = scales[fine, vectors]
    if points is None:
        chosen = blocks.points_at(scale + spec.BETA_GAP * beta)
    else:
        chosen = points[:, np.where(beta, coarse, fine), np.arange(len(beta))[:, None], vectors]
    return _Choice(totals[best, vectors], scale, beta, chosen)


def _better(first: _Choice | None, second: _Choice) -> _Choice:
    """Return the better choice for each vector, the first if they are equal."""
    if first is None:
        return second
    take = second.error < first.error
    scale, beta = (np.where(take, b, a) for a, b in zip(first[1:3], second[1:3], strict=True))
    return _Choice(
        np.minimum(first.error, second.error), scale, beta, _select(take, second.points, first.points)
    )


def _select(condition: np.ndarray, yes: np.ndarray, no: np.ndarray) -> np.ndarray:
    """Return ``np.where`` of int16, computed without branches, which are slow."""
    chosen: np.ndarray = no ^ ((yes ^ no) & -condition.astype(np.int16))
    return chosen


class _Blocks:
    """Vectors in blocks, float32 ``[8, blocks, n]``; ``clips`` says whether a coordinate may exceed LIMIT."""

    def __init__(self, y: np.ndarray, q: int, walls: int, *, clips: bool) -> None:
        self.y, self.q, self.walls, self.clips = y, q, walls, clips
        self.together = max(1, COLUMNS // y[0].size)

    def at(self, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return twice the codewords, int16 ``[8, m, blocks, n]``, and squared errors, at scales ``[m, n]``."""
        points, far, _ = self._coded(self._scaled(scales))
        unit = steps_of(scales)
        errors = far.reshape(len(scales), *self.y.shape[1:]) * (unit * unit)[:, None]
        return points.reshape(8, *errors.shape), errors

    def mixed(self, scales: np.ndarray, loud: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the same and the beta bits; ``loud`` blocks, bool ``[m, blocks, n]``, have theirs set.

        Another block whose nearest point is outside sets its bit if that errs less.
        """
        size, steps = self.y[0].size, range(0, len(scales), self.together)
        points, far = np.empty((8, loud.size), np.int16), np.empty(loud.size, np.float32)
        parts = []
        for i in steps:
            some = slice(i, i + self.together)
            here = slice(i * size, min(i + self.together, len(scales)) * size)
            unit = np.where(
                loud[some], *(steps_of(-scales[some] - gap)[:, None] for gap in (spec.BETA_GAP, 0))
            )
            z = (self.y[:, None] * unit).reshape(8, -1)
            points[:, here], far[here], outside = self._near(z)
            parts.append((outside + i * size, np.take(z, outside, axis=1)))
        outside, z = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
        fine, coarse = (unit * unit for unit in (steps_of(scales), steps_of(scales + spec.BETA_GAP)))
        beta = loud.reshape(-1).copy()
        if outside.size:
            points[:, outside], far[outside] = self._walled(z, points[:, outside])
        errors = far * np.where(loud, coarse[:, None], fine[:, None]).reshape(-1)
        again = outside[~beta[outside]]
        if again.size:
            row, column = again // size, again % loud.shape[2]
            z = np.take(self.y.reshape(8, -1), again % size, axis=1)
            z *= steps_of(-scales - spec.BETA_GAP)[row, column]
            with_beta, far, _ = self._coded(z)
            far *= coarse[row, column]
            closer = far < errors[again]
            better = again[closer]
            beta[better] = True
            points[:, better], errors[better] = with_beta[:, closer], far[closer]
        return points.reshape(8, *loud.shape), errors.reshape(loud.shape), beta.reshape(loud.shape)

    def points_at(self, scales: np.ndarray) -> np.ndarray:
        """Return twice the codewords at a scale for each block, ``[blocks, n]``."""
        return self._coded((self.y * steps_of(-scales)).reshape(8, -1))[0].reshape(self.y.shape)

    def _scaled(self, scales: np.ndarray) -> np.ndarray:
        columns: np.ndarray = (self.y[:, None] * steps_of(-scales)[:, None]).reshape(8, -1)
        return columns

    def _coded(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return codewords near columns, their squared distances, and the columns whose nearest point is outside.

        A column without a codeword keeps its nearest point at the distance OUTSIDE.
        """
        points, far, outside = self._near(z)
        if self.walls and outside.size:
            points[:, outside], far[outside] = self._walled(np.take(z, outside, axis=1), points[:, outside])
        return points, far, outside

    def _near(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the same without moving onto walls."""
        if self.clips:
            np.clip(z, -LIMIT, LIMIT, out=z)
        points, far = nearest(z)
        outside = np.flatnonzero(~inside(points, self.q))
        far[outside] = OUTSIDE
        return points, far, outside

    def _walled(self, z: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return codewords near columns whose nearest points are outside, and squared distances."""
        distance = np.full(points.shape[1], OUTSIDE)
        where = np.arange(len(distance))
        if self.clips and self.walls:
            where = np.flatnonzero(np.maximum.reduce(np.abs(z)) < LIMIT)
        if len(where) < len(distance):
            columns, last = z[:, where], points[:, where]
        else:
            columns, last = z, points
        near = columns
        for _ in range(self.walls):
            near = at_wall(near, last, self.q)
            last, _ = nearest(near)
            fits = inside(last, self.q)
            gap = columns - np.float32(0.5) * last
            gap = halved_sum(np.multiply(gap, gap, out=gap), gap)
            done = where[fits]
            points[:, done], distance[done] = last[:, fits], gap[fits]
            rest = ~fits
            if not rest.any():
                break
            where, columns, near, last = where[rest], columns[:, rest], near[:, rest], last[:, rest]
        return points, distance


def _guessed(product: np.ndarray, layout: Layout, search: Search) -> np.ndarray:
    """Return the likeliest scale of the grid for each vector, int ``[n]``: see ``search._guessed``."""
    top, least = _judged(search, layout.q)
    errors = np.maximum(product, top)
    errors -= top
    errors *= errors
    errors += least
    smaller = np.minimum(errors[: search.count], errors[-search.count :])
    likeliest: np.ndarray = halved_sum(smaller.swapaxes(0, 1)).argmin(axis=0)
    return likeliest


@cache
def _judged(search: Search, q: int) -> np.ndarray:
    return np.array(search.judged(q), np.float32).T[..., None, None]


def steps_of(k: np.ndarray) -> np.ndarray:
    """Return 2^(k / 32), float32, for k of at most 126 octaves."""
    return _STEPS.take(k + len(_STEPS) // 2)


def _scale_of_square(square: np.ndarray) -> np.ndarray:
    """Return the largest k with 2^(k / 32) <= sqrt(square), int32, for positive normal float32."""
    bits = square.view(np.int32)
    mantissa = ((bits & 0x7FFFFF) | 0x3F800000).view(np.float32)
    above = (mantissa >= _MARKS[:, None]).sum(axis=0, dtype=np.int32)
    scale: np.ndarray = 16 * ((bits >> 23) - 127) + above
    return scale


def _label(points: np.ndarray, bits: int) -> np.ndarray:
    """Return the fields of each coset, uint8 ``[8, blocks, n]``, of twice its point: ``cosets.label``."""
    q = 1 << bits
    parity = points[:1] & 1
    whole = (points - parity) >> 1
    whole += whole[:1] & (q // 2)
    wraps = (whole[:7] >> bits).sum(axis=0, dtype=np.int16)
    whole[7] = (whole[7] + q * wraps) >> 1
    fields: np.ndarray = (whole & (q - 1)).astype(np.uint8)
    fields[0] |= (parity[0] << (bits - 1)).astype(np.uint8)
    return fields


def _pack(scale: np.ndarray, beta: np.ndarray, fields: np.ndarray, layout: Layout) -> np.ndarray:
    """Return rows of bytes of scales ``[n]``, beta bits ``[blocks, n]`` and fields ``[8, blocks, n]``."""
    rows = np.empty((layout.nbytes, len(scale)), np.uint8)
    rows[0], rows[1] = scale & 0xFF, (scale >> 8) & 0xFF
    at = 2 + layout.beta_bytes
    rows[2:at] = np.packbits(beta, axis=0, bitorder="little")
    flat = fields.reshape(layout.dim, -1)
    for width, low in layout.planes:
        values = (flat >> low) & ((1 << width) - 1)
        size = layout.dim * width // 8
        plane = rows[at : at + size]
        plane[:] = values[:size]
        for i in range(1, 8 // width):
            plane |= values[size * i : size * (i + 1)] << (width * i)
        at += size
    return np.ascontiguousarray(rows.T)
