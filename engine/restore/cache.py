"""A cache that keeps a sink and a window, and passes evicted positions to attention as a source restores them.

The reconstruction is part of the result of ``update_and_fetch``, which attention reads. So the installed mlx-lm
runs unchanged, and cannot overlook it. Eviction happens between forward passes: a chunk of the prompt sees itself,
the window before it and the sink exactly, and all else only as restored. If chunks are as long as the window, this
is near to what each token would see by itself.
"""

from collections.abc import Callable, Sequence
from typing import Any

from engine.cache.protocol import Cache
from engine.errors import BadInput
from engine.lm import base
from engine.lm import cache as lm_cache
from engine.mx import mx, nn
from engine.restore.sources import Pair, Source, joined


class RestoredCache:
    """One layer's keys and values, in the protocol of mlx-lm's caches.

    The first ``sink`` and the last ``window`` positions are not evicted. ``source`` gives the others back; None gives
    nothing back. ``sliding`` is how far back a token of this layer sees, itself counted; None sees everything.

    Attributes:
        offset: number of tokens so far.
        evicted: number of evicted positions.
        injected_positions: how many restored positions the last forward pass read.
        injected_reads: the sum of these over all forward passes.
    """

    def __init__(self, sink: int, window: int, source: Source | None, sliding: int | None = None) -> None:
        self.sink, self.window, self.source, self.sliding = sink, window, source, sliding
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self.offset = self.evicted = self.injected_positions = self.injected_reads = 0

    @property
    def caches(self) -> Sequence[Any]:
        """The source, so that its bytes are counted with the bytes of this cache."""
        return () if self.source is None else (self.source,)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Evict old positions, append new ones, and return sink, restored positions, window and new positions."""
        self._evict()
        self.offset += keys.shape[2]
        window = (keys, values) if self._window is None else joined(self._window, (keys, values))
        self.keys, self.values = window
        if self.source is None or not self.evicted:
            return window
        pair = self.source.give()
        count = pair[0].shape[2]
        if count != self.evicted or pair[1].shape[2] != self.evicted:
            raise BadInput(f"a source gave {count} positions back, {self.evicted} were evicted")
        self.injected_positions = count
        self.injected_reads += count
        keys, values = (
            mx.concatenate([x[:, :, : self.sink], restored, x[:, :, self.sink :]], axis=2)
            for x, restored in zip(window, pair, strict=True)
        )
        return keys, values

    @property
    def _window(self) -> Pair | None:
        return None if self.keys is None or self.values is None else (self.keys, self.values)

    def _evict(self) -> None:
        window, old = self._window, self.size() - self.sink - self.window
        if window is None or old <= 0:
            return
        gone = slice(self.sink, self.sink + old)
        if self.source is not None:
            self.source.take(self.sink + self.evicted, window[0][:, :, gone], window[1][:, :, gone])
        self.evicted += old
        self.keys, self.values = (
            mx.concatenate([x[:, :, : self.sink], x[:, :, gone.stop :]], axis=2) for x in window
        )

    def make_mask(
        self, rows: int, window_size: int | None = None, return_array: bool = False
    ) -> mx.array | str | None:
        """Return the mask of ``rows`` new rows, which see all returned positions, and each other causally.

        Rows of a sliding layer see only as far back as in the model: positions farther back are masked, stored or
        restored.
        """
        if window_size != self.sliding:
            cache = f"a cache for {self.sliding or 'all'}"
            message = f"a sliding layer of {window_size} positions cannot be restored by {cache}"
            raise BadInput(message, "make the caches with restored_caches(..., sliding=True)")
        if window_size is not None:
            return self._sliding_mask(rows, window_size)
        if not return_array:
            return None if rows == 1 else "causal"
        length = min(self.size(), self.sink + self.window) if self.source is None else self.offset
        mask: mx.array | str | None = base.create_causal_mask(rows, length)
        return mask

    def _sliding_mask(self, rows: int, window: int) -> mx.array:
        new = mx.arange(self.offset, self.offset + rows)
        at = mx.arange(self.offset + rows)
        if self.source is None:
            length = min(self.size(), self.sink + self.window)
            near = max(0, length - self.sink)
            at = mx.concatenate([at[: min(length, self.sink)], at[self.offset - near :]])
        return (at[None] <= new[:, None]) & (at[None] > new[:, None] - window)

    def size(self) -> int:
        """Return the number of stored positions."""
        return 0 if self.keys is None else self.keys.shape[2]

    @property
    def state(self) -> list[mx.array]:
        """The stored arrays, for evaluation."""
        return list(self._window or ())

    @property
    def nbytes(self) -> int:
        """Bytes of the stored arrays."""
        return sum(x.nbytes for x in self.state)

    def empty(self) -> bool:
        """Return whether there were no tokens yet."""
        return self.keys is None

    def is_trimmable(self) -> bool:
        """Return False: tokens cannot be rolled back, because the positions that were evicted for them are gone."""
        return False


def layers_of(model: nn.Module, *, sliding: bool) -> tuple[int, ...]:
    """Return which caches of a model belong to its full-attention layers, or to its sliding ones."""
    wanted = lm_cache.RotatingKVCache if sliding else lm_cache.KVCache
    return tuple(i for i, cache in enumerate(lm_cache.make_prompt_cache(model)) if type(cache) is wanted)


def restored_layers(model: nn.Module, *, sliding: bool = False) -> tuple[int, ...]:
    """Return which caches of a model can be restored (``layers_of``); BadInput if there is none."""
    layers = layers_of(model, sliding=sliding)
    if not layers:
        kind, other = ("sliding", "full-attention") if sliding else ("full-attention", "sliding")
        message = f"this model has no {kind} layer with a cache of its own"
        raise BadInput(message, f"restore its {other} layers")
    return layers


def restored_caches(
    model: nn.Module,
    sink: int,
    window: int,
    source: Callable[[int], Source | None],
    *,
    sliding: bool = False,
) -> list[Cache]:
    """Return one cache per layer: layers of one kind evict and restore, all others keep the model's own caches.

    The first ``sink`` and the last ``window`` positions stay; ``source`` returns what restores the cache of an index.
    With ``sliding``, sliding layers are restored, while full-attention ones keep their exact keys and values. BadInput
    if the model has no such layer, or the sizes are none, or more than a sliding layer sees.
    """
    if sink < 0 or window < 1:
        raise BadInput(f"a sink of {sink} and a window of {window}", "0 or more, and 1 or more")
    caches: list[Any] = lm_cache.make_prompt_cache(model)
    for i in restored_layers(model, sliding=sliding):
        reach = caches[i].max_size if sliding else None
        if reach is not None and sink + window >= reach:
            raise BadInput(
                f"a sliding layer sees {reach} positions, and a sink of {sink} and a window of {window} hold them all",
                "choose a smaller window",
            )
        caches[i] = RestoredCache(sink, window, source(i), reach)
    return caches
