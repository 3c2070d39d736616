"""Counts the bytes of caches from their live arrays."""

from collections.abc import Sequence
from typing import Any

from engine.cache.protocol import Cache
from engine.live_bytes import layer_of, memory_of
from engine.mx import mx, tree


def live(caches: Sequence[Cache], peak: int | None = None) -> dict[str, Any]:
    """Return the ``memory`` of a report's row: what caches allocated, filled or not, and MLX's ``peak`` in bytes."""
    layers = (layer_of(type(cache).__name__, arrays(cache)) for cache in caches)
    return {**memory_of(layers), "peak_bytes": peak}


def arrays(cache: Any) -> list[mx.array]:
    """Return the arrays of a cache, including those of inner caches."""
    inner = [*getattr(cache, "caches", ()), *([cache.inner] if "inner" in vars(cache) else [])]
    own = [leaf for _, leaf in tree.tree_flatten(vars(cache)) if isinstance(leaf, mx.array)]
    return own + [array for part in inner for array in arrays(part)]
