"""Attention over packed keys and values, tile by tile, in the rotated domain.

With H orthonormal, ``q . k = (H q) . (H k)`` and ``sum p v = H^T sum p (H v)``: the query is rotated once,
the output is un-rotated once, and the cache is never un-rotated. Each tile of tokens is decoded, used by all
query rows, and dropped before the next tile is decoded. A running maximum and sum make the softmax exact over
all tiles (M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax", 2018). So the keys, values
and scores of the whole cache never exist at once.
"""

from itertools import pairwise
from typing import NamedTuple

from engine.attention import kernel, on_cpu
from engine.attention.views import PackedView
from engine.mx import mx

TILE = 1024  # tokens decoded at a time
FEW = 128  # the most query rows for tiles of that size: with more rows, scores take the most memory
MANY_TILE = 256  # tokens decoded at a time for more rows
ROWS = 384  # query rows of a key-value head at a time
LOWEST = -1e30  # the score of masked tokens: finite, so that the difference of two is not NaN


class _QueryRows(NamedTuple):
    """Query rows that are scored together, and the tokens that each row may see."""

    queries: mx.array  # rotated and scaled, `[batch, key-value heads, rows of all their query heads, dim]`
    shape: tuple[int, int, int]  # batch, query heads and rows
    mask: mx.array | None  # of these rows, `[batch or 1, query heads or 1, rows or 1, length]`, or None
    position: int | None  # of the first row, if a row sees only the positions up to its own; else None

    def sees(self, token: int) -> bool:
        """Return whether a row may see this token or one after it."""
        return self.position is None or token < self.position + self.shape[2]

    def masked(self, scores: mx.array, start: int, stop: int) -> mx.array:
        """Return the scores of tokens ``start`` to ``stop``; tokens that a row may not see get the lowest score."""
        mask = None if self.mask is None else self.mask[..., start:stop]
        if self.position is not None and stop > self.position + 1:
            rows = mx.arange(self.position, self.position + self.shape[2])
            mask = rows[:, None] >= mx.arange(start, stop)
        if mask is None:
            return scores
        grouped = scores.reshape(*self.shape, -1)
        if mask.dtype == mx.bool_:
            return mx.where(mask, grouped, LOWEST).reshape(scores.shape)
        return mx.maximum(grouped + mask.astype(mx.float32), LOWEST).reshape(scores.shape)


class _State(NamedTuple):
    """So far: largest score, sum of weights ``[b, h, r, 1]``, and weighted values ``[b, h, r, d]``."""

    largest: mx.array
    total: mx.array
    values: mx.array

    def weighted(self) -> mx.array:
        """Return the values weighted by the softmax, zeros for rows that see nothing."""
        unmasked = (self.largest > LOWEST / 2).astype(mx.float32)
        return self.values * unmasked / mx.maximum(self.total, 1e-37)


def attend(
    queries: mx.array,
    keys: PackedView,
    values: PackedView,
    *,
    scale: float,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
    softcap: float | None = None,
) -> mx.array:
    """Return attention outputs ``[batch, query heads, rows, value dim]``, of the queries' type.

    Args:
        queries: ``[batch, query heads, rows, dim]``; query heads are a multiple of the keys' heads.
        keys: packed, ``[batch, heads, length, dim]``.
        values: packed, ``[batch, heads, length, value dim]``.
        scale: factor of the scores.
        mask: None; ``"causal"`` (the rows are the last positions); or an array that broadcasts to ``[batch,
            query heads, rows, length]``: bool (True is seen) or numbers that are added.
        sinks: a score for each query head, ``[query heads]``, that takes weight but has no value.
        softcap: scores become ``softcap * tanh(score / softcap)``, before the mask.

    The output of a row that may see nothing is zero.
    """
    rotated = keys.codec.rotate(queries) * scale
    for_few_rows = kernel if kernel.backend() else on_cpu
    if sinks is None and softcap is None and for_few_rows.fits(queries, keys, values, mask):
        out = for_few_rows.attend_rows(rotated, keys, values, causal=mask is not None)
        return values.codec.unrotate(out).astype(queries.dtype)
    row_groups = _row_groups(rotated, mask, keys.shape[1], keys.shape[2])
    states = _attend(
        row_groups, [_start(group, values.shape[-1], sinks) for group in row_groups], keys, values, softcap
    )
    outs = [
        state.weighted().reshape(*group.shape, -1) for group, state in zip(row_groups, states, strict=True)
    ]
    out = outs[0] if len(outs) == 1 else mx.concatenate(outs, axis=2)
    return values.codec.unrotate(out).astype(queries.dtype)


def _row_groups(
    queries: mx.array, mask: mx.array | str | None, kv_heads: int, length: int
) -> list[_QueryRows]:
    """Return the rows of ``[batch, query heads, rows, dim]``, about ROWS a key-value head at a time."""
    if isinstance(mask, str) and mask != "causal":
        raise ValueError(f"no mask {mask!r}")
    batch, heads, rows, dim = queries.shape
    sharing = heads // kv_heads  # query heads of a key-value head
    full = None  # the mask with four axes, the last of them the cache's length
    if isinstance(mask, mx.array):
        full = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        full = mx.broadcast_to(full, (*full.shape[:-1], length))
    count = max(1, -(-rows * sharing // ROWS))
    bounds = [rows * i // count for i in range(count + 1)]
    row_groups = []
    for start, stop in pairwise(bounds):
        some = queries[:, :, start:stop].reshape(batch, kv_heads, sharing * (stop - start), dim)
        own = full if full is None or full.shape[2] == 1 else full[:, :, start:stop]
        position = length - rows + start if isinstance(mask, str) else None
        row_groups.append(_QueryRows(some, (batch, heads, stop - start), own, position))
    return row_groups


def _attend(
    row_groups: list[_QueryRows],
    states: list[_State],
    keys: PackedView,
    values: PackedView,
    softcap: float | None,
) -> list[_State]:
    """Return the states of all groups after all tiles."""
    length = keys.shape[2]
    tile = min(TILE, MANY_TILE) if max(group.queries.shape[2] for group in row_groups) > FEW else TILE
    last = states[-1]
    for start in range(0, length, tile):
        stop = min(start + tile, length)
        # Each tile waits for the one before it, so that only one tile and one group's scores exist at a time.
        tile_keys = _after(keys, last).rotated(start, stop).swapaxes(-1, -2)
        tile_values = _after(values, last).rotated(start, stop)
        for i, group in enumerate(row_groups):
            if not group.sees(start):
                continue
            queries, _ = mx.depends([group.queries, last.total], [last.values])
            scores = queries @ tile_keys
            if softcap is not None:
                scores = mx.tanh(scores / softcap) * softcap
            states[i] = last = _add(states[i], group.masked(scores, start, stop), tile_values)
    return states


def _after(view: PackedView, state: _State) -> PackedView:
    """Return the same view, to be read only when ``state`` has been computed."""
    (rows,) = mx.depends([view.rows], [state.values])
    return PackedView(rows, view.codec, view.dtype)


def _start(group: _QueryRows, dim: int, sinks: mx.array | None) -> _State:
    grouped = group.queries.shape[:3]
    zeros = mx.zeros((*grouped, dim))
    if sinks is None:
        return _State(mx.full((*grouped, 1), LOWEST), mx.zeros((*grouped, 1)), zeros)
    scores = mx.repeat(sinks.astype(mx.float32), group.shape[2]).reshape(1, grouped[1], -1, 1)
    return _State(mx.broadcast_to(scores, (*grouped, 1)), mx.ones((*grouped, 1)), zeros)


def _add(state: _State, scores: mx.array, values: mx.array) -> _State:
    """Take a tile's scores ``[b, h, r, t]`` and values ``[b, h, t, d]`` into the softmax."""
    largest = mx.maximum(state.largest, scores.max(axis=-1, keepdims=True))
    weights = mx.exp(scores - largest)
    fade = mx.exp(state.largest - largest)
    total = state.total * fade + weights.sum(axis=-1, keepdims=True)
    return _State(largest, total, state.values * fade + weights @ values)
