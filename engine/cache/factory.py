"""Caches for a model, by spec."""

from collections.abc import Sequence
from typing import Any

from engine.attention.router import patched, route
from engine.cache.packed import LatticeKVCache, LatticeRotatingKVCache
from engine.cache.protocol import Cache
from engine.cache.roundtrip import make_kakeya_caches
from engine.cache.spec import Spec, parse
from engine.cache.trial import refusal
from engine.cache.wrapping import wrap_caches
from engine.errors import BadInput
from engine.lm import cache as lm_cache
from engine.mx import nn

SUGGESTED = ("e8v@4.25", "affine@4g64", "affine@4g32", "e8@q38")


def make_caches(model: nn.Module, spec: str, boundary: int = 0) -> list[Cache]:
    """Return one cache per layer, for mlx-lm's ``prompt_cache``.

    Args:
        model: an mlx-lm model.
        spec: see :mod:``engine.cache.spec``. Caches of state-space and other layers that keep no keys and
            values stay the model's own; so do sliding layers under ``affine``, which mlx-lm cannot quantize.
        boundary: how many of the first and of the last key-value layers stay raw.

    Raises:
        BadInput: no such spec, a negative boundary, or caches that this model cannot run over: head sizes that
            the spec does not divide, attention sinks or shared keys and values over quantized ones.
    """
    parsed = parse(spec)
    if boundary < 0:
        raise BadInput(f"boundary is {boundary}", "the number of layers left raw at either end, 0 or more")
    if parsed.family == "raw":
        caches: list[Any] = lm_cache.make_prompt_cache(model)
        return caches
    if not (reason := refusal(model, _made(model, parsed, boundary), parsed)):
        return _made(model, parsed, boundary)
    if parsed.family == "e8v" and not refusal(model, _made(model, parsed, boundary, views=False), parsed):
        return _made(model, parsed, boundary, views=False)
    raise BadInput(f"this model cannot use the cache {spec}: {reason}", _others(model, spec, boundary))


def _others(model: nn.Module, spec: str, boundary: int) -> str:
    """Return which caches the model can use instead."""
    others = [other for other in SUGGESTED if other != spec]
    fit = [
        other for other in others if not refusal(model, _made(model, parse(other), boundary), parse(other))
    ]
    return f"caches that it can use: {', '.join(['raw', *fit])}"


def _made(model: nn.Module, parsed: Spec, boundary: int, *, views: bool = True) -> list[Cache]:
    if parsed.family == "classic":
        return make_kakeya_caches(model, parsed.lattice, parsed.q_range, boundary)
    if parsed.family == "affine":
        return wrap_caches(model, boundary, lambda cache, _: _affine(cache, parsed))
    return wrap_caches(model, boundary, lambda cache, layer: _packed(cache, parsed, layer, views=views))


def patches_of(model: nn.Module, caches: Sequence[Cache]) -> tuple[str, ...]:
    """Return the names replaced in mlx-lm so that a model can use these caches; empty for its own caches."""
    views = any(
        getattr(inner, "views", False) for cache in caches for inner in (cache, *getattr(cache, "caches", ()))
    )
    return patched(model) if views else ()


def _packed(cache: Any, spec: Spec, layer: nn.Module, *, views: bool) -> Any:
    views = views and route(layer)  # without views a layer that works on keys and values itself gets arrays
    if type(cache) is lm_cache.RotatingKVCache:
        return LatticeRotatingKVCache(cache.max_size, cache.keep, spec.bits, spec.effort, views=views)
    return LatticeKVCache(spec.bits, spec.effort, views=views)


def growing(spec: str) -> Cache:
    """Return an empty cache of a spec that keeps every position, for a layer whose own keeps the last ones only.

    Raises:
        BadInput: there is none of this spec.
    """
    parsed = parse(spec)
    if parsed.family == "e8v":
        return LatticeKVCache(parsed.bits, parsed.effort)
    if parsed.family == "affine":
        cache: Cache = lm_cache.QuantizedKVCache(group_size=parsed.group, bits=int(parsed.bits))
        return cache
    raise BadInput(f"{spec} cannot hold what sliding layers evict", "take e8v@... or affine@...")


def _affine(cache: Any, spec: Spec) -> Any:
    if type(cache) is lm_cache.RotatingKVCache:
        return cache
    return lm_cache.QuantizedKVCache(group_size=spec.group, bits=int(spec.bits))
