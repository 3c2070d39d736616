"""Takes snapshots of caches at the end of a prompt block, and restores them.

The snapshot of a growing cache has only the block's own entries, so prompts with a common beginning share them. The
snapshot of a ring or a recurrent state has the whole state, which cannot be assembled from parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.cache import wrapping
from engine.cache.kinds import layout_of
from engine.cache.roundtrip import KakeyaLatticeMLXCache
from engine.dflash.drafter.context import copied, joined
from engine.dflash.drafter.protocol import Context
from engine.mx import mx, tree


@dataclass(frozen=True)
class Snapshot:
    """The snapshot of one cache."""

    kind: str  # segment, ring, states or window; unused if the model's layer does not use its cache
    arrays: Sequence[Any]  # MLX's, or their bytes in NumPy's during a restore; None for an absent state
    numbers: list[int] = field(default_factory=list)  # offsets and similar integers
    codec: str = ""  # the codec id of packed rows

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(x.nbytes for x in self.arrays if x is not None)


def flat(caches: Sequence[Any]) -> list[Any]:
    """Return mlx-lm's caches inside a model's caches, without lists and wrappers."""
    bare = wrapping.flat(caches)
    return [cache.inner if isinstance(cache, KakeyaLatticeMLXCache) else cache for cache in bare]


def take(cache: Any, start: int, end: int) -> Snapshot:
    """Return the snapshot of a cache with ``end`` tokens, for the block that begins at ``start``."""
    layout, codec = layout_of(cache), getattr(cache, "codec_id", "")
    if layout in ("growing", "ring") and cache.empty():
        return Snapshot("unused", [])
    if layout == "growing":
        leaves = tree.tree_flatten([cache.keys, cache.values])
        return Snapshot("segment", [copied(x, start, end) for _, x in leaves], codec=codec)
    if layout == "ring":
        arrays = [_handle(cache.keys), _handle(cache.values)]
        return Snapshot("ring", arrays, [cache.offset, cache._idx], codec)  # noqa: SLF001 - no public name
    return Snapshot("states", [_handle(x) for x in cache.cache])


def put(cache: Any, path: Sequence[Snapshot], length: int) -> None:
    """Restore a fresh cache from the ``length`` tokens of a path of blocks."""
    last = path[-1]
    if last.kind == "unused":
        return
    if last.codec:
        cache.use_codec(last.codec)
    if last.kind == "segment":
        whole = [joined([block.arrays[i] for block in path]) for i in range(len(last.arrays))]
        half = len(whole) // 2
        keys, values = tuple(whole[:half]), tuple(whole[half:])
        cache.keys, cache.values = (keys, values) if half > 1 else (keys[0], values[0])
        cache.offset = length
    elif last.kind == "ring":
        cache.keys, cache.values = (_handle(x) for x in last.arrays)
        cache.offset, cache._idx = last.numbers  # noqa: SLF001
    else:
        cache.cache = [_handle(x) for x in last.arrays]


def take_context(context: Context, start: int, end: int) -> list[Snapshot]:
    """Return the snapshots of a drafter's context that has read ``end`` tokens, one per layer."""
    return [
        Snapshot("segment" if layer.keep is None else "window", layer.saved(start, end))
        for layer in context.layers
    ]


def put_context(context: Context, paths: Sequence[Sequence[Snapshot]], length: int) -> None:
    """Restore a fresh drafter context from a path of blocks."""
    for layer, path in zip(context.layers, paths, strict=True):
        layer.restore([list(block.arrays) for block in path])
    context.offset = length


def _handle(x: mx.array | None) -> mx.array | None:
    """Return another handle of an array, so that writing to one handle does not change the other."""
    return None if x is None else mx.array(x)
