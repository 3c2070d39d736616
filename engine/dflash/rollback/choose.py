"""Which rollback a cache gets."""

from collections.abc import Callable
from typing import Any

from engine.cache.packed import LatticeKVCache, LatticeRotatingKVCache, PackedMixin
from engine.cache.roundtrip import KakeyaLatticeMLXCache
from engine.dflash.rollback.late import LateGrowing, LateRing
from engine.dflash.rollback.rounds import Part, Rollback
from engine.dflash.rollback.trim import Trim
from engine.errors import BadInput
from engine.lm import cache as lm_cache

KINDS = ("auto", "late", "trim", "carry")
GROWING = (lm_cache.KVCache, lm_cache.QuantizedKVCache, LatticeKVCache)
RINGS = (lm_cache.RotatingKVCache, LatticeRotatingKVCache)


def rollback_for(caches: list[Any], kind: str = "auto") -> Rollback:
    """Return a rollback over the caches of one generation.

    Args:
        caches: one a layer, as :func:`engine.cache.make_caches` gives them; batch 1.
        kind: ``auto`` (trimming for growing caches, late commit for rings, recomputation for recurrent
            states), ``late`` (late commit for growing caches too, except mlx-lm's quantized ones), ``trim``
            (nothing else) or ``carry`` (snapshots; what a partly rejected block kept is run again at the head
            of the next).

    Raises:
        BadInput: no such kind, a cache of a class that is not known, or one that the kind cannot take back.
    """
    if kind not in KINDS:
        raise BadInput(f"no rollback {kind!r}", ", ".join(KINDS))
    parts: list[Part] = []
    seen = [_part(cache, kind, parts) for cache in caches]
    return Rollback(parts, seen)


def _part(cache: Any, kind: str, parts: list[Part]) -> Any:
    """Add what takes ``cache`` back to ``parts``; return what the model is given in its place."""
    if isinstance(cache, lm_cache.CacheList):
        return lm_cache.CacheList(*(_part(inner, kind, parts) for inner in cache.caches))
    held = cache.inner if isinstance(cache, KakeyaLatticeMLXCache) else cache
    if type(held) in RINGS:
        if kind == "trim":
            raise BadInput(
                f"a {type(held).__name__} cannot be trimmed once it wraps", "rollback late, or auto"
            )
        parts.append(LateRing(held, *_stores(cache)))
    elif type(held) in GROWING and kind == "late" and type(held) is not lm_cache.QuantizedKVCache:
        parts.append(LateGrowing(held, *_stores(cache)))
    elif type(held) in GROWING:
        parts.append(Trim(cache))
    else:
        raise BadInput(f"no rollback {kind!r} for a {type(held).__name__}", "decode it without speculation")
    return parts[-1].cache


def _stores(cache: Any) -> tuple[Callable, Callable]:
    """Return what a cache makes of keys and values before it stores them, and of what is stored."""
    if isinstance(cache, PackedMixin):
        return cache.pack, cache.read
    return cache.through if isinstance(cache, KakeyaLatticeMLXCache) else _as_is, _as_is


def _as_is(keys: Any, values: Any) -> tuple[Any, Any]:
    return keys, values
