"""Attention of a few query rows over packed rows on a CPU, in NumPy.

NumPy computes exponentials many times faster than MLX's CPU backend, and arrays that never become MLX's are not copied.
A tile's result does not depend on the other tiles, so threads share the tiles, and their number does not change a bit.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

import numpy as np

from engine import blas
from engine.attention.views import PackedView
from engine.codec.cpu import decoder
from engine.codec.cpu.scratch import Scratch
from engine.codec.spec import Layout
from engine.codec.voronoi import VoronoiCodec, computes_on_cpu
from engine.mx import mx

LOWEST = np.float32(-1e30)  # the score of masked tokens
MOST_ROWS = 128  # the most query rows of a key-value head: with more rows, scores take the most memory
MOST_THREADS = 8  # each has some two megabytes of its own


class _Tile(NamedTuple):
    """A tile's largest scores and sums of weights ``[m, rows, 1]``, and weighted values ``[m, rows, dim]``."""

    largest: np.ndarray
    total: np.ndarray
    values: np.ndarray


def fits(queries: mx.array, keys: PackedView, values: PackedView, mask: mx.array | str | None) -> bool:
    """Return whether ``attend_rows`` supports these arguments of ``attend``."""
    heads, rows = queries.shape[1:3]
    return (
        computes_on_cpu()
        and (mask is None or (isinstance(mask, str) and mask == "causal"))
        and all(isinstance(x.codec, VoronoiCodec) for x in (keys, values))
        and 0 < heads // keys.shape[1] * rows <= MOST_ROWS
        and keys.shape[2] > 0
    )


def attend_rows(queries: mx.array, keys: PackedView, values: PackedView, *, causal: bool) -> mx.array:
    """Return weighted values, rotated, float32 ``[batch, query heads, rows, value dim]``.

    The queries are rotated and scaled, float32 ``[batch, query heads, rows, dim]``. With ``causal``, a row sees only
    the positions up to its own, the rows being the last ones.
    """
    batch, heads, rows, dim = queries.shape
    kv_heads, length = keys.shape[1:3]
    mx.eval(queries, keys.rows, values.rows)
    grouped = np.asarray(queries).reshape(batch * kv_heads, -1, dim)
    first, second = (_Side.of(view) for view in (keys, values))
    visible = np.tile(np.arange(length - rows + 1, length + 1), heads // kv_heads) if causal else None
    size = max(1, decoder.COLUMNS // max(x.layout.blocks * len(x.rows) for x in (first, second)))

    def tile(start: int) -> _Tile:
        return _tile(grouped, first, second, start, min(start + size, length), visible)

    whole = _joined(_map(tile, range(0, length, size)))
    return mx.array(whole).reshape(batch, heads, rows, -1)


class _Side(NamedTuple):
    """Rows of keys or values, uint8 ``[m, length, bytes]``."""

    rows: np.ndarray
    layout: Layout

    @classmethod
    def of(cls, view: PackedView) -> "_Side":
        assert isinstance(view.codec, VoronoiCodec)  # noqa: S101 - `fits` comes first
        return cls(np.asarray(view.rows).reshape(-1, *view.rows.shape[2:]), view.codec.layout)

    def decoded(self, start: int, stop: int) -> np.ndarray:
        """Return a tile, float32 ``[m, dim, tokens]``, in memory that the thread's next tile reuses."""
        shape = (len(self.rows), self.layout.dim, stop - start)
        out = _scratch.take(int(np.prod(shape)) * 4).view(np.float32).reshape(shape)
        decoder.decode(self.rows[:, start:stop], self.layout, out)
        return out


_scratch = Scratch()


def _tile(
    queries: np.ndarray, keys: _Side, values: _Side, start: int, stop: int, visible: np.ndarray | None
) -> _Tile:
    """Attend over tokens ``start`` to ``stop``; ``visible`` says how many tokens each row may see."""
    scores = queries @ keys.decoded(start, stop)
    if visible is not None and stop > visible[0]:
        scores[:, visible[:, None] <= np.arange(start, stop)] = LOWEST
    largest = scores.max(axis=-1, keepdims=True)
    scores -= largest
    weights = np.exp(scores, out=scores)
    total = weights.sum(axis=-1, keepdims=True)
    return _Tile(largest, total, weights @ values.decoded(start, stop).swapaxes(-1, -2))


def _joined(tiles: list[_Tile]) -> np.ndarray:
    """Return the values weighted by the softmax over all tiles."""
    largest, total, values = (np.stack(parts) for parts in zip(*tiles, strict=True))
    fade = np.exp(largest - largest.max(axis=0))
    whole: np.ndarray = (values * fade).sum(axis=0) / (total * fade).sum(axis=0)
    return whole


def _map(work: Callable[[int], _Tile], starts: range) -> list[_Tile]:
    threads = min(blas.threads() or 1, MOST_THREADS)
    if len(starts) == 1 or threads == 1:
        return [work(start) for start in starts]
    return list(_pool(threads).map(work, starts))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "attention")
