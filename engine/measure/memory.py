"""Bytes of caches, counted from the arrays that are alive."""

from collections.abc import Sequence
from typing import Any

from engine.mx import mx, tree


def live(caches: Sequence[Any], peak: int | None = None) -> dict[str, Any]:
    """Return the ``memory`` of a report's row.

    Args:
        caches: one a layer, after the last token. What they allocated counts, filled or not.
        peak: the most bytes that MLX held during the run.
    """
    layers = [_layer(cache) for cache in caches]
    return {
        "counted": "live_arrays",
        "cache_bytes": sum(layer["nbytes"] for layer in layers),
        "layers": layers,
        "peak_bytes": peak,
    }


def _layer(cache: Any) -> dict[str, Any]:
    arrays = [array for array in _arrays(cache) if array.size]
    return {
        "kind": type(cache).__name__,
        "nbytes": sum(array.nbytes for array in arrays),
        "arrays": [
            {"shape": list(array.shape), "dtype": str(array.dtype).removeprefix("mlx.core.")}
            for array in arrays
        ],
    }


def _arrays(cache: Any) -> list[mx.array]:
    """Return the arrays that a cache holds, those of caches within it too."""
    inner = [*getattr(cache, "caches", ()), *([cache.inner] if "inner" in vars(cache) else [])]
    own = [leaf for _, leaf in tree.tree_flatten(vars(cache)) if isinstance(leaf, mx.array)]
    return own + [array for held in inner for array in _arrays(held)]
