"""The Voronoi encoder in torch, on a tensor's own device. Its rows equal those of ``engine.codec.cpu.encoder``."""

from typing import NamedTuple

import torch

from engine.codec import spec
from engine.codec.spec import LIMIT, Guess, Layout, Search, safe_margin
from engine.torch import hadamard
from engine.torch.lattice import at_wall, column, fold, inside, largest_product, nearest
from engine.torch.scales import exponent_of, power_of_two, scale_of_square, steps_of

# Blocks (of one or several scales) that are processed together: on a CPU, so that their arrays stay in a core's cache.
ON_CPU, ON_GPU = 12288, 1 << 22
OUTSIDE = 2.0**60


def encode(x: torch.Tensor, layout: Layout, search: Search) -> torch.Tensor:
    """Return packed rows, uint8 ``[n, nbytes]``, of any float32 ``[n, dim]``."""
    columns = ON_CPU if x.device.type == "cpu" else ON_GPU
    size = max(1, columns // layout.blocks)
    parts = [_encode(x[i : i + size], layout, search, columns) for i in range(0, len(x), size)]
    return torch.cat(parts) if parts else x.new_zeros((0, layout.nbytes), dtype=torch.uint8)


def _encode(x: torch.Tensor, layout: Layout, search: Search, columns: int) -> torch.Tensor:
    y, exponents = _normalised(x)
    y = y.reshape(8, layout.blocks, -1)
    alive = fold(torch.add, fold(torch.add, y * y)) >= 2.0**-40
    y = y + (~alive).float()  # for a zero vector, search with ones; the result is dropped
    best = _choose(y, layout, search, columns)
    scale = (best.scale + spec.OCTAVE * exponents).clamp(spec.SCALE_MIN, spec.SCALE_MAX)
    scale = torch.where(alive, scale, spec.SCALE_ZERO)
    return _pack(scale, best.beta & alive, _label(best.points, layout.bits) * alive, layout)


def _normalised(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return vectors ``[n, dim]`` rotated, and divided by a power of two near their largest, as ``[dim, n]``; NaN is 0.

    Also the powers' exponents, int32 ``[n]``.
    """
    y = torch.where(x.isnan(), 0.0, x).T.contiguous().clamp(-spec.LARGEST, spec.LARGEST)
    exponents = exponent_of(y.abs().amax(0)).clamp(min=-100)
    return hadamard.rotate(y * power_of_two(-exponents)), exponents


class _Choice(NamedTuple):
    """For each vector, the best of the scales tried so far."""

    error: torch.Tensor  # squared, float32 `[n]`
    scale: torch.Tensor  # int32 `[n]`
    beta: torch.Tensor  # bool `[blocks, n]`
    points: torch.Tensor  # twice the codewords, int16 `[8, blocks, n]`

    def better(self, other: "_Choice") -> "_Choice":
        """Return the better choice for each vector, this one if they are equal."""
        take = other.error < self.error
        chosen = (torch.where(take, b, a) for a, b in zip(self[1:], other[1:], strict=True))
        return _Choice(torch.minimum(self.error, other.error), *chosen)


def _choose(y: torch.Tensor, layout: Layout, search: Search, columns: int) -> _Choice:
    energies = fold(torch.add, y * y)
    energy = fold(torch.add, energies)
    finest = scale_of_square(energy * (1 / layout.dim)) - spec.OCTAVE * layout.bits + search.first
    safe = scale_of_square(energies.amax(0).clamp(min=2.0**-80)) + safe_margin(layout.q)
    if not search.guess:
        return _by_grid(_Blocks(y, layout.q, search.walls, columns), finest, safe, search)
    blocks = _Blocks(y, layout.q, search.walls, columns)
    best = _by_guess(blocks, finest, layout, search, search.guess)
    points, errors = _Blocks(y, layout.q, 0, columns).at(safe[None])
    error = torch.where(best.error > search.guess.spare * energy, fold(torch.add, errors[0]), torch.inf)
    beta = torch.ones_like(best.beta)
    return best.better(_Choice(error, safe - spec.BETA_GAP, beta, points[:, 0]))


def _by_guess(
    blocks: "_Blocks", finest: torch.Tensor, layout: Layout, search: Search, guess: Guess
) -> _Choice:
    product = largest_product(blocks.y) * steps_of(-finest)
    likely = search.stride * _guessed(product, layout, search)
    best: _Choice | None = None
    for offset in guess.offsets:
        above = likely + offset
        loud = product > (layout.q + guess.near) * steps_of(above)
        points, errors, beta = blocks.mixed(finest + above, loud)
        other = _Choice(fold(torch.add, errors), finest + above, beta, points)
        best = other if best is None else best.better(other)
    assert best is not None  # noqa: S101 - every guess has offsets
    return best


def _guessed(product: torch.Tensor, layout: Layout, search: Search) -> torch.Tensor:
    """Return the likeliest scale of the grid for each vector, int32 ``[n]``: see ``search._guessed``."""
    errors = [(product.clamp(min=top) - top).square() + least for top, least in search.judged(layout.q)]
    pairs = zip(errors[: search.count], errors[-search.count :], strict=True)
    return torch.stack([fold(torch.add, torch.minimum(*pair)) for pair in pairs]).argmin(0).int()


def _by_grid(blocks: "_Blocks", finest: torch.Tensor, safe: torch.Tensor, search: Search) -> _Choice:
    reach = spec.BETA_GAP // search.stride
    grid = search.count + reach
    usual = finest + column(tuple(range(0, search.stride * grid, search.stride)), finest)
    loud = safe + column((-2 * spec.BETA_GAP, -spec.BETA_GAP, 0), safe)
    scales = torch.cat([usual, loud])
    steps = range(0, len(scales), blocks.together)
    errors = torch.cat([blocks.at(scales[i : i + blocks.together])[1] for i in steps])
    fine = torch.cat([errors[: search.count], errors[grid:-1]])
    coarse = torch.cat([errors[reach:grid], errors[grid + 1 :]])
    totals = fold(torch.add, torch.minimum(fine, coarse).movedim(1, 0))
    best = totals.argmin(0)[None]
    scale = torch.cat([scales[: search.count], scales[grid:-1]]).gather(0, best)[0]
    beta = (coarse < fine).gather(0, best[:, None].expand(-1, coarse.shape[1], -1))[0]
    return _Choice(totals.amin(0), scale, beta, blocks.points_at(scale + spec.BETA_GAP * beta.int()))


class _Blocks:
    """Vectors in blocks, float32 ``[8, blocks, n]``."""

    def __init__(self, y: torch.Tensor, q: int, walls: int, columns: int) -> None:
        self.y, self.q, self.walls = y, q, walls
        self.together = max(1, columns // y[0].numel())

    def at(self, scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return twice the codewords, int16 ``[8, m, blocks, n]``, and squared errors, at scales ``[m, n]``."""
        z = self._scaled(scales[:, None])
        points, far, _ = self._coded(z)
        unit = steps_of(scales)
        errors = far.reshape(len(scales), *self.y.shape[1:]) * (unit * unit)[:, None]
        return points.reshape(8, *errors.shape), errors

    def mixed(
        self, scale: torch.Tensor, loud: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return codewords, errors and beta bits at a scale ``[n]``; ``loud`` blocks, ``[blocks, n]``, have theirs set.

        Another block whose nearest point is outside sets its bit if that errs less.
        """
        shape = self.y.shape
        points, far, fits = self._coded(self._scaled(scale + spec.BETA_GAP * loud.int()))
        with_beta, far_beta, _ = self._coded(self._scaled(scale[None] + spec.BETA_GAP))
        fine, coarse = steps_of(scale), steps_of(scale + spec.BETA_GAP)
        errors = far.reshape(loud.shape) * torch.where(loud, coarse * coarse, fine * fine)
        others = far_beta.reshape(loud.shape) * (coarse * coarse)
        change = ~loud & ~fits.reshape(loud.shape) & (others < errors)
        chosen = torch.where(change, with_beta.reshape(shape), points.reshape(shape))
        return chosen, torch.where(change, others, errors), loud | change

    def points_at(self, scales: torch.Tensor) -> torch.Tensor:
        """Return twice the codewords at a scale for each block, ``[blocks, n]``."""
        return self._coded(self._scaled(scales))[0].reshape(self.y.shape)

    def _scaled(self, scales: torch.Tensor) -> torch.Tensor:
        """Return the blocks in units of scales that fit ``[m, blocks, n]`` or ``[blocks, n]``, as columns."""
        y = self.y if scales.ndim == 2 else self.y[:, None]  # noqa: PLR2004
        return (y * steps_of(-scales)).reshape(8, -1).clamp(-LIMIT, LIMIT)

    def _coded(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return codewords near columns, their squared distances, and whether the nearest point is one.

        A column without a codeword keeps its nearest point at the distance OUTSIDE.
        """
        points, far = nearest(z)
        fits = inside(points, self.q)
        far = torch.where(fits, far, OUTSIDE)
        if not self.walls:
            return points, far, fits
        outside = torch.nonzero(~fits & (z.abs().amax(0) < LIMIT))[:, 0]
        columns = near = z[:, outside]
        last = points[:, outside]
        for _ in range(self.walls):
            near = at_wall(near, last, self.q)
            last, _ = nearest(near)
            gap = columns - 0.5 * last
            done = inside(last, self.q)
            points[:, outside[done]] = last[:, done]
            far[outside[done]] = fold(torch.add, gap * gap)[done]
            outside, columns, near, last = (x[..., ~done] for x in (outside, columns, near, last))
        return points, far, fits


def _label(points: torch.Tensor, bits: int) -> torch.Tensor:
    """Return the fields of each coset, int32 ``[8, blocks, n]``, of twice its point: ``cosets.label``."""
    q = 1 << bits
    points = points.int()
    parity = points[:1] & 1
    whole = (points - parity) >> 1
    whole = whole + (whole[:1] & (q // 2))
    wraps = (whole[:7] >> bits).sum(0, dtype=torch.int32)
    last = ((whole[7:] + q * wraps) >> 1) & (q - 1)
    fields = torch.cat([whole[:7] & (q - 1), last])
    fields[0] |= parity[0] << (bits - 1)
    return fields


def _pack(scale: torch.Tensor, beta: torch.Tensor, fields: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Return rows of bytes of scales ``[n]``, beta bits ``[blocks, n]`` and fields ``[8, blocks, n]``."""
    n = len(scale)
    padded = torch.zeros((8 * layout.beta_bytes, n), dtype=torch.int32, device=scale.device)
    padded[: layout.blocks] = beta.int()
    weights = column(tuple(1 << i for i in range(8)), padded)
    parts = [(scale & 0xFF)[None], ((scale >> 8) & 0xFF)[None]]
    parts.append((padded.reshape(-1, 8, n) * weights).sum(1, dtype=torch.int32))
    flat = fields.reshape(layout.dim, n)
    for width, low in layout.planes:
        values = ((flat >> low) & ((1 << width) - 1)).reshape(8 // width, -1, n)
        shifts = column(tuple(range(0, 8, width)), values)[..., None]
        parts.append((values << shifts).sum(0, dtype=torch.int32))
    return torch.cat(parts).to(torch.uint8).T.contiguous()
