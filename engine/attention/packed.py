"""Attention over packed keys and values, tile by tile, in the rotated domain.

With H orthonormal, ``q . k = (H q) . (H k)`` and ``sum p v = H^T sum p (H v)``: the query is rotated once,
the output un-rotated once, and the cache is never un-rotated at all. A tile of tokens is decoded, used and
dropped before the next one is, and a running maximum and sum make the softmax exact over all tiles (M.
Milakov and N. Gimelshein, "Online normalizer calculation for softmax", 2018). Neither the keys, nor the
values, nor the scores of the whole cache exist at any time.
"""

from typing import NamedTuple

from engine.attention import kernel as decode
from engine.attention.views import PackedView
from engine.mx import mx

TILE = 384  # tokens decoded at a time
MANY = 256  # tokens decoded at a time for more query rows than that: their scores take the most memory
ROWS = 512  # query rows a key-value head looks at a time
LOWEST = -1e30  # the score of what is masked: finite, so that no difference of two is NaN


class _Stored(NamedTuple):
    """What all query rows attend to."""

    keys: PackedView
    values: PackedView
    sinks: mx.array | None
    softcap: float | None
    visible: int  # how many tokens, from the first, the mask hides from no row


class _State(NamedTuple):
    """So far: largest score, sum of weights ``[b, h, r, 1]``, and weighted values ``[b, h, r, d]``."""

    largest: mx.array
    total: mx.array
    values: mx.array


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
        sinks: a score for each query head that takes weight and has no value, ``[query heads]``.
        softcap: scores become ``softcap * tanh(score / softcap)``, before the mask.

    A row that may see nothing gives zeros.
    """
    batch, heads, rows, _ = queries.shape
    groups = heads // keys.shape[1]
    rotated = keys.codec.rotate(queries) * scale
    if sinks is None and softcap is None and decode.backend() and decode.fits(queries, keys, values, mask):
        out = decode.attend_rows(rotated, keys, values, causal=mask is not None)
        return values.codec.unrotate(out).astype(queries.dtype)
    visible = keys.shape[2] - rows if isinstance(mask, str) else None
    mask = _mask(mask, queries, keys)
    parts = []
    size = max(1, ROWS // groups)
    for start in range(0, rows, size):
        stop = min(start + size, rows)
        part = None if mask is None else mask if mask.shape[2] == 1 else mask[:, :, start:stop]
        before = 0 if visible is None else visible + start
        stored = _Stored(keys, values, sinks, softcap, before)
        parts.append(_attend_rows(rotated[:, :, start:stop], stored, part))
    out = parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=2)
    return values.codec.unrotate(out).reshape(batch, heads, rows, values.shape[-1]).astype(queries.dtype)


def _attend_rows(queries: mx.array, stored: _Stored, mask: mx.array | None) -> mx.array:
    keys, values, sinks, softcap, visible = stored
    batch, heads, rows, dim = queries.shape
    _, kv_heads, length, _ = keys.shape
    grouped = (batch, kv_heads, heads // kv_heads * rows)
    queries = queries.reshape(*grouped, dim)
    state = _start(grouped, values.shape[-1], sinks, rows)
    tile = min(TILE, MANY) if grouped[-1] > MANY else TILE
    for start in range(0, length, tile):
        stop = min(start + tile, length)
        # The tile waits for the tile before it, so that only one is decoded at a time.
        queries, _ = mx.depends([queries, state.total], [state.values])
        scores = queries @ _after(keys, state).rotated(start, stop).swapaxes(-1, -2)
        if softcap is not None:
            scores = mx.tanh(scores / softcap) * softcap
        if mask is not None and stop > visible:
            scores = _masked(scores.reshape(batch, heads, rows, -1), mask[..., start:stop]).reshape(
                scores.shape
            )
        state = _add(state, scores, _after(values, state).rotated(start, stop))
    unmasked = (state.largest > LOWEST / 2).astype(mx.float32)
    out = state.values * unmasked / mx.maximum(state.total, 1e-37)
    return out.reshape(batch, heads, rows, values.shape[-1])


def _after(view: PackedView, state: _State) -> PackedView:
    """Return the same view, to be read only when ``state`` has been computed."""
    (rows,) = mx.depends([view.rows], [state.values])
    return PackedView(rows, view.codec, view.dtype)


def _start(grouped: tuple[int, int, int], dim: int, sinks: mx.array | None, rows: int) -> _State:
    zeros = mx.zeros((*grouped, dim))
    if sinks is None:
        return _State(mx.full((*grouped, 1), LOWEST), mx.zeros((*grouped, 1)), zeros)
    scores = mx.repeat(sinks.astype(mx.float32), rows).reshape(1, grouped[1], -1, 1)
    return _State(mx.broadcast_to(scores, (*grouped, 1)), mx.ones((*grouped, 1)), zeros)


def _add(state: _State, scores: mx.array, values: mx.array) -> _State:
    """Take a tile's scores ``[b, h, r, t]`` and values ``[b, h, t, d]`` into the softmax."""
    largest = mx.maximum(state.largest, scores.max(axis=-1, keepdims=True))
    weights = mx.exp(scores - largest)
    fade = mx.exp(state.largest - largest)
    total = state.total * fade + weights.sum(axis=-1, keepdims=True)
    return _State(largest, total, state.values * fade + weights @ values)


def _mask(mask: mx.array | str | None, queries: mx.array, keys: PackedView) -> mx.array | None:
    """Return a mask of four axes, the last of them the cache's length."""
    if mask is None:
        return None
    rows, length = queries.shape[2], keys.shape[2]
    if isinstance(mask, str):
        if mask != "causal":
            raise ValueError(f"no mask {mask!r}")
        position = mx.arange(length - rows, length)
        return (position[:, None] >= mx.arange(length))[None, None]
    mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    return mx.broadcast_to(mask, (*mask.shape[:-1], length))


def _masked(scores: mx.array, mask: mx.array) -> mx.array:
    if mask.dtype == mx.bool_:
        return mx.where(mask, scores, LOWEST)
    return mx.maximum(scores + mask.astype(mx.float32), LOWEST)
