"""Counts the bytes of caches from their live arrays."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from engine.cache.protocol import Cache
from engine.mx import dtype_name, mx, tree


def live(caches: Sequence[Cache], peak: int | None = None) -> dict[str, Any]:
    """Return the ``memory`` of a report's row: what caches allocated, filled or not, and MLX's ``peak`` in bytes."""
    return {**section(layer(type(cache).__name__, arrays(cache)) for cache in caches), "peak_bytes": peak}


def section(layers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the ``memory`` of layers: equal neighbours become one entry with a ``count``."""
    runs = [(layer, len([*run])) for layer, run in itertools.groupby(layers)]
    return {
        "counted": "live_arrays",
        "cache_bytes": sum(layer["nbytes"] * count for layer, count in runs),
        "layers": [layer | {"count": count} if count > 1 else layer for layer, count in runs],
    }


def layer(kind: str, arrays: Iterable[mx.array]) -> dict[str, Any]:
    """Return one layer of a ``memory``; empty arrays do not count."""
    live = [x for x in arrays if x.size]
    about = [{"shape": list(x.shape), "dtype": dtype_name(x.dtype)} for x in live]
    return {"kind": kind, "nbytes": sum(x.nbytes for x in live), "arrays": about}


def arrays(cache: Any) -> list[mx.array]:
    """Return the arrays of a cache, including those of inner caches."""
    inner = [*getattr(cache, "caches", ()), *([cache.inner] if "inner" in vars(cache) else [])]
    own = [leaf for _, leaf in tree.tree_flatten(vars(cache)) if isinstance(leaf, mx.array)]
    return own + [array for part in inner for array in arrays(part)]
