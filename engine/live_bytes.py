"""Counts the bytes of the live arrays in caches, by the same rule for MLX and torch."""

from collections.abc import Iterable, Mapping
from typing import Any


def live_bytes(caches: Iterable[Any]) -> int:
    """Return the bytes of the arrays in caches of layers. An empty quantized cache of mlx-lm cannot report its size."""
    return sum(_live(cache) for cache in caches)


def _live(cache: Any) -> int:
    if hasattr(cache, "caches"):
        return live_bytes(cache.caches)
    if getattr(cache, "keys", ()) is None:
        return 0
    if hasattr(cache, "nbytes"):
        return int(cache.nbytes)
    return sum(map(_bytes_in, vars(cache).values()))  # transformers' layers do not count themselves


def _bytes_in(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(map(_bytes_in, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_bytes_in, value))
    return int(value.nbytes) if getattr(value, "ndim", 0) else 0
