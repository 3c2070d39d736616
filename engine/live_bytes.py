"""Counts the bytes of the live arrays in caches, by the same rule for MLX and torch."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def live_bytes(caches: Iterable[Any]) -> int:
    """Return the bytes of the arrays in caches of layers. An empty quantized cache of mlx-lm cannot report its size."""
    return sum(_live(cache) for cache in caches)


def memory_of(layers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the ``memory`` of a report's row: equal neighbours among its layers become one entry with a ``count``."""
    runs = [(layer, len([*run])) for layer, run in itertools.groupby(layers)]
    return {
        "counted": "live_arrays",
        "cache_bytes": sum(layer["nbytes"] * count for layer, count in runs),
        "layers": [layer | {"count": count} if count > 1 else layer for layer, count in runs],
    }


def layer_of(kind: str, arrays: Iterable[Any]) -> dict[str, Any]:
    """Return one layer of a ``memory``; empty arrays do not count."""
    live = [x for x in arrays if x.nbytes]
    about = [{"shape": list(x.shape), "dtype": str(x.dtype).rpartition(".")[2]} for x in live]
    return {"kind": kind, "nbytes": sum(x.nbytes for x in live), "arrays": about}


def arrays_in(value: Any) -> Iterator[Any]:
    """Yield the arrays in a cache's variables, or in a value among them."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from arrays_in(part)
    elif getattr(value, "ndim", 0):
        yield value


def _live(cache: Any) -> int:
    if hasattr(cache, "caches"):
        return live_bytes(cache.caches)
    if getattr(cache, "keys", ()) is None:
        return 0
    if hasattr(cache, "nbytes"):
        return int(cache.nbytes)
    # Transformers' layers do not count themselves.
    return sum(int(x.nbytes) for x in arrays_in(vars(cache)))
