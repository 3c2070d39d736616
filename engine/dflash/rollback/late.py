"""Rollback by committing late: a block's keys and values stay outside the cache until they are accepted.

The forward pass sees cache and block joined; each row has the same window as in one-token decoding. Rejected
tokens never reach the cache, so there is nothing to undo: a ring may wrap in the middle of a block, and only
window and block stay in memory after the pass.
"""

from typing import Any

import numpy as np

from engine.cache.proxy import CacheProxy
from engine.errors import RollbackError
from engine.lm import cache as lm_cache
from engine.mx import mx

Pair = tuple[Any, Any]


def _stored(name: str, side: int) -> property:
    """Return a property: the block's keys or values; outside a round the cache's.

    Some models replace what they have just stored, to tie computations together. During a round they replace the block.
    """

    def read(self: "Late") -> Any:
        return getattr(self.inner, name) if self.block is None else self.block[side]

    def replace(self: "Late", x: mx.array) -> None:
        if self.block is None:
            setattr(self.inner, name, x)
        else:
            self.block = (x, self.block[1]) if side == 0 else (self.block[0], x)

    return property(read, replace)


class Late(CacheProxy, own=("stand_in", "block", "_coded")):
    """A cache's proxy during rounds: it joins the cache's content with a block, and keeps the block separate.

    ``inner`` is mlx-lm's growing cache or ring, or a packed one of ours, ``cache`` the same, or what encodes before it
    stores in it.
    """

    name = "late"

    def __init__(self, inner: Any, cache: Any) -> None:
        super().__init__(inner)
        self._coded = cache if hasattr(cache, "pack") else None
        self.stand_in = self
        self.block: Pair | None = None

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Pair:
        """Keep a block, and return the cache's content followed by the block."""
        if self.block is not None:
            raise RollbackError("a layer ran twice in one round")
        self._take(*(self._coded.pack(keys, values) if self._coded is not None else (keys, values)))
        return self.keys_and_values()

    def _take(self, keys: mx.array, values: mx.array) -> None:
        self.block = keys, values

    def keys_and_values(self) -> Pair:
        """Return all keys and values that the rows of this round may see."""
        parts = [part for part in (self._stored_rows(), self.block) if part is not None]
        keys, values = (mx.concatenate(list(pair), axis=2) for pair in zip(*parts, strict=True))
        return self._coded.read(keys, values) if self._coded is not None else (keys, values)

    def _stored_rows(self) -> Pair | None:
        """Return the cache's content before the block; None if it is empty."""
        raise NotImplementedError

    def _append(self, keys: mx.array, values: mx.array) -> None:
        """Put accepted entries into the cache."""
        raise NotImplementedError

    keys, values = _stored("keys", 0), _stored("values", 1)

    @property
    def offset(self) -> int:
        """The number of tokens so far, including the block's."""
        offset: int = self.inner.offset + (0 if self.block is None else self.block[0].shape[2])
        return offset

    def begin(self) -> None:
        """Save nothing: the cache stays as it is."""

    def check(self, rows: int, keep: int) -> None:  # noqa: ARG002
        """Check that the forward pass stored ``rows`` rows (RollbackError)."""
        waiting = 0 if self.block is None else self.block[0].shape[2]
        if waiting != rows:
            raise RollbackError(f"a layer stored {waiting} rows in a forward over {rows}")

    def commit(self, rows: int, keep: int) -> None:
        """Append the first ``keep`` of the block's entries to the cache."""
        block, self.block = self.block, None
        if keep and block is not None:
            self._append(*(block if keep == rows else (x[:, :, :keep] for x in block)))

    def abandon(self) -> None:
        """Forget the block."""
        self.block = None


class LateGrowing(Late):
    """For growing caches. Joining copies the whole cache in each round, so trimming costs less."""

    def _stored_rows(self) -> Pair | None:
        cache = self.inner
        if cache.keys is None:
            return None
        return tuple(x[:, :, : cache.offset] for x in (cache.keys, cache.values))

    def _append(self, keys: mx.array, values: mx.array) -> None:
        lm_cache.KVCache.update_and_fetch(self.inner, keys, values)


class LateRing(Late, own=("_ahead",)):
    """Late commit for ring caches: accepted tokens go into the same slots as if they had been decoded one by one.

    A block of one token is stored at once, at the cost of plain decoding. Its slot is free, or held the token that has
    just left the window for good. So a rollback only moves the writing position back by one.
    """

    _ahead = False  # whether a single token was stored already

    def _take(self, keys: mx.array, values: mx.array) -> None:
        if self._ahead:
            raise RollbackError("a layer ran twice in one round")
        if keys.shape[2] > 1:
            super()._take(keys, values)
        else:
            self._append(keys, values)
            self._ahead = True

    def check(self, rows: int, keep: int) -> None:
        """See ``Late.check``."""
        if not self._ahead or rows != 1:
            super().check(rows, keep)

    def commit(self, rows: int, keep: int) -> None:
        """See ``Late.commit``."""
        if not self._ahead:
            super().commit(rows, keep)
        elif keep:
            self._ahead = False
        else:
            self.abandon()

    def abandon(self) -> None:
        """Forget the block."""
        super().abandon()
        if self._ahead:
            self.inner.offset -= 1
            self._at -= 1
            self._ahead = False

    def make_mask(self, n: int, window_size: int | None = None, return_array: bool = False) -> Any:
        """Return a mask for ``n`` rows over the ring's slots, in the ring's order, and then the block.

        A row sees the tokens that one-token decoding would have in the ring at its position: the first ``keep``
        and the last ``max_size - keep`` including its own. If ``window_size`` is given, it sees only the last
        ``window_size`` of these.
        """
        ring = self.inner
        if n == 1:
            return ring.make_mask(n, window_size, return_array)
        window = min(window_size or ring.max_size, ring.max_size)
        if ring.offset + n <= window and not return_array:
            return "causal"
        rows = np.arange(ring.offset, ring.offset + n)[:, None]
        positions = np.concatenate([self.positions(), rows[:, 0]])
        back = rows - positions
        mask = (
            (back >= 0)
            & ((positions < ring.keep) | (back < ring.max_size - ring.keep))
            & ((back < window) | (window == ring.max_size))
        )
        return mx.array(mask)

    def _stored_rows(self) -> Pair | None:
        ring = self.inner
        if ring.keys is None:
            return None
        if ring.offset < ring.keys.shape[2]:
            return tuple(x[:, :, : ring.offset] for x in (ring.keys, ring.values))
        return ring.keys, ring.values

    def positions(self) -> np.ndarray:
        """Return the position of the token in each slot, ``[slots]``."""
        ring = self.inner
        size = 0 if ring.keys is None else ring.keys.shape[2]
        if ring.offset <= size:
            return np.arange(ring.offset)
        latest = np.arange(ring.offset - (size - ring.keep), ring.offset)
        return np.concatenate([np.arange(ring.keep), np.roll(latest, self._at - ring.keep)])

    def _append(self, keys: mx.array, values: mx.array) -> None:
        ring, done, count = self.inner, 0, keys.shape[2]
        while done < count:
            take = min(self._make_room(keys, values), count - done)
            slots, part = slice(self._at, self._at + take), slice(done, done + take)
            ring.keys[:, :, slots] = keys if take == count else keys[:, :, part]
            ring.values[:, :, slots] = values if take == count else values[:, :, part]
            self._at += take
            ring.offset += take
            done += take

    def _make_room(self, keys: mx.array, values: mx.array) -> int:
        """Make room as mlx-lm's ring does before a one-token write; return the slots from there to the end.

        It grows by ``step`` until it has ``max_size`` slots, loses what a longer prompt left in it, and
        starts again behind the first ``keep`` when its end is reached.
        """
        ring = self.inner
        size = 0 if ring.keys is None else ring.keys.shape[2]
        if ring.keys is None or (ring.offset >= size and size < ring.max_size):
            more = min(ring.step, ring.max_size - ring.offset)
            new = [mx.zeros((*x.shape[:2], more, x.shape[3]), x.dtype) for x in (keys, values)]
            if ring.keys is not None:
                pairs = zip((ring.keys, ring.values), new, strict=True)
                new = [mx.concatenate(list(pair), axis=2) for pair in pairs]
            ring.keys, ring.values = new
            self._at = ring.offset
        elif size > ring.max_size:
            cut = ring.keep + size - ring.max_size
            ring.keys, ring.values = (
                mx.concatenate([x[:, :, : ring.keep], x[:, :, cut:]], axis=2)
                for x in (ring.keys, ring.values)
            )
            self._at = ring.max_size
        if self._at == ring.max_size:
            self._at = ring.keep
        room: int = ring.keys.shape[2] - self._at
        return room

    @property
    def _at(self) -> int:
        """The slot that the ring writes next."""
        index: int = self.inner._idx  # noqa: SLF001 - mlx-lm has no public name for it
        return index

    @_at.setter
    def _at(self, slot: int) -> None:
        self.inner._idx = slot  # noqa: SLF001
