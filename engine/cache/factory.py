"""Caches for a model, by spec."""

from collections.abc import Sequence
from typing import Any

from bridge.reports.cache_spec import CacheSpec
from engine.attention.router import patched_names
from engine.cache import kinds
from engine.cache.compatibility import refusal
from engine.cache.protocol import Cache
from engine.cache.spec import parse
from engine.cache.wrapping import flat, wrap_caches
from engine.errors import BadInput
from engine.lm import cache as lm_cache
from engine.mx import nn

SUGGESTED = ("e8v@4.25", "affine@4g64", "affine@4g32", "e8@q38")


def make_caches(model: nn.Module, spec: str, boundary: int = 0) -> list[Cache]:
    """Return one cache per layer, for mlx-lm's ``prompt_cache``.

    Args:
        model: an mlx-lm model.
        spec: see ``bridge.reports.cache_spec``. Caches of state-space and other layers that keep no keys and
            values stay the model's own; so do sliding layers under ``affine``, which mlx-lm cannot quantize.
        boundary: how many of the first and of the last key-value layers stay raw.

    Raises:
        BadInput: no such spec, a negative boundary, or caches that this model cannot run over: head sizes that
            the spec does not divide, attention sinks or shared keys and values over quantized ones.
    """
    parsed = parse(spec)

    def wrapped(spec: CacheSpec, *, views: bool = True) -> list[Cache]:
        wrap = kinds.kind_of(spec).wrap
        return wrap_caches(model, boundary, lambda cache, layer: wrap(cache, spec, layer, views))

    if boundary < 0:
        raise BadInput(f"boundary is {boundary}", "the number of layers left raw at either end, 0 or more")
    if parsed.family == "raw":
        caches: list[Any] = lm_cache.make_prompt_cache(model)
        return caches
    if not (reason := refusal(model, wrapped(parsed), parsed)):
        return wrapped(parsed)
    if kinds.kind_of(parsed) is kinds.PACKED and not refusal(model, wrapped(parsed, views=False), parsed):
        return wrapped(parsed, views=False)
    others = (parse(other) for other in SUGGESTED if other != spec)
    fit = [other.text for other in others if not refusal(model, wrapped(other), other)]
    raise BadInput(
        f"this model cannot use the cache {spec}: {reason}",
        f"caches that it can use: {', '.join(['raw', *fit])}",
    )


def patches_of(model: nn.Module, caches: Sequence[Cache]) -> tuple[str, ...]:
    """Return the names of mlx-lm's functions that are replaced for these caches; empty for the model's own caches."""
    return patched_names(model) if any(getattr(cache, "views", False) for cache in flat(caches)) else ()
