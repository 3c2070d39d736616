"""Finds the caches of a model that hold keys and values, also in lists of caches, and replaces them by wrappers."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from engine.cache.protocol import Cache
from engine.lm import cache as lm_cache
from engine.mx import nn

KEY_VALUE = (lm_cache.KVCache, lm_cache.RotatingKVCache)


def flat(caches: Sequence[Any]) -> Iterator[Any]:
    """Yield caches; for a list of caches, the caches in it."""
    for cache in caches:
        if isinstance(cache, lm_cache.CacheList):
            yield from flat(cache.caches)
        else:
            yield cache


def map_nested(cache: Any, replace: Callable[[Any], Any]) -> Any:
    """Return the replacement of a cache or, for a list of caches, the list of replacements."""
    if isinstance(cache, lm_cache.CacheList):
        return lm_cache.CacheList(*(map_nested(inner, replace) for inner in cache.caches))
    return replace(cache)


def wrap_caches(model: nn.Module, boundary: int, wrap: Callable[[Any, nn.Module], Any]) -> list[Cache]:
    """Return the model's caches with ``wrap(cache, layer)`` in place of each cache of keys and values."""
    caches: list[Cache] = lm_cache.make_prompt_cache(model)
    # If layers share caches or have none, no cache belongs to one layer, so the whole model is tried.
    layers = model.layers if len(model.layers) == len(caches) else [model] * len(caches)
    holders = uncompressed_layers(caches)

    def wrapped(layer: nn.Module, cache: Any) -> Any:
        return wrap(cache, layer) if type(cache) in KEY_VALUE else cache

    for i in holders[boundary : len(holders) - boundary]:
        caches[i] = map_nested(caches[i], partial(wrapped, layers[i]))
    return caches


def uncompressed_layers(caches: Sequence[Cache]) -> list[int]:
    """Return which of a model's caches hold uncompressed keys and values."""
    return [i for i, cache in enumerate(caches) if any(type(each) in KEY_VALUE for each in flat([cache]))]
