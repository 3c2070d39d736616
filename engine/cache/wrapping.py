"""Finds the caches of a model that hold keys and values, and replaces them by wrappers."""

from collections.abc import Callable, Sequence
from typing import Any

from engine.cache.protocol import Cache
from engine.lm import cache as lm_cache
from engine.mx import nn

KEY_VALUE = (lm_cache.KVCache, lm_cache.RotatingKVCache)


def wrap_caches(model: nn.Module, boundary: int, wrap: Callable[[Any, nn.Module], Any]) -> list[Cache]:
    """Return the model's caches with ``wrap(cache, layer)`` in place of each cache of keys and values."""
    caches: list[Cache] = lm_cache.make_prompt_cache(model)
    # If layers share caches or have none, no cache belongs to one layer, so the whole model is tried.
    layers = model.layers if len(model.layers) == len(caches) else [model] * len(caches)
    holders = [i for i, cache in enumerate(caches) if _holds(cache)]
    for i in holders[boundary : len(holders) - boundary]:
        caches[i] = _wrap_one(caches[i], layers[i], wrap)
    return caches


def left_raw(caches: Sequence[Cache]) -> list[int]:
    """Return which of a model's caches hold uncompressed keys and values."""
    return [i for i, cache in enumerate(caches) if _holds(cache)]


def _holds(cache: Any) -> bool:
    if isinstance(cache, lm_cache.CacheList):
        return any(_holds(inner) for inner in cache.caches)
    return type(cache) in KEY_VALUE


def _wrap_one(cache: Any, layer: nn.Module, wrap: Callable[[Any, nn.Module], Any]) -> Any:
    if isinstance(cache, lm_cache.CacheList):
        return lm_cache.CacheList(*(_wrap_one(inner, layer, wrap) for inner in cache.caches))
    return wrap(cache, layer) if type(cache) in KEY_VALUE else cache
