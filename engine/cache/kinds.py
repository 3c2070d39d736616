"""The tables of cache kinds: how to create caches, by the family of a spec; and how caches behave, by class.

A codec in ``engine.codec.kinds.CODECS`` whose specs pack needs no entry: its caches are packed ones.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from bridge.reports.cache_spec import CacheSpec
from engine.attention.router import route
from engine.cache.packed import PackedKVCache, PackedRotatingKVCache
from engine.cache.protocol import Cache
from engine.cache.roundtrip import KakeyaLatticeMLXCache, codec_maker
from engine.errors import BadInput
from engine.lm import cache as lm_cache
from engine.mx import nn

Layout = Literal["growing", "ring", "states", "unknown"]


class CacheKind(NamedTuple):
    """How the caches of a family of specs are made."""

    # A function that returns a layer's cache, given its original cache, the spec, the layer, and whether it
    # may return views.
    wrap: Callable[[Any, CacheSpec, nn.Module, bool], Any]
    # A function that makes an empty cache that keeps every position; None if this kind has no such cache.
    growing: Callable[[CacheSpec], Cache] | None
    stock: bool = False  # whether mlx-lm decodes over it as installed, so that a baseline may use it


class CacheClass(NamedTuple):
    """How a class of caches behaves."""

    # How the cache takes new tokens. `growing` appends: rollback trims it, and snapshots are segments. `ring`
    # overwrites: tokens are committed late, and snapshots are whole. `states` are recomputed, and saved
    # whole.
    layout: Layout
    # Whether keys and values are one array each, to which a block can be joined for late commit.
    joins: bool = True


def _affine(spec: CacheSpec) -> Cache:
    cache: Cache = lm_cache.QuantizedKVCache(int(spec.fields["group"]), int(spec.fields["bits"]))
    return cache


def _wrap_affine(cache: Any, spec: CacheSpec, layer: nn.Module, views: bool) -> Any:  # noqa: ARG001
    return cache if CLASSES[type(cache)].layout == "ring" else _affine(spec)  # mlx-lm cannot quantize a ring


def _wrap_classic(cache: Any, spec: CacheSpec, layer: nn.Module, views: bool) -> Any:  # noqa: ARG001
    return KakeyaLatticeMLXCache(cache, codec_maker(spec.text), spec.text)


def _wrap_packed(cache: Any, spec: CacheSpec, layer: nn.Module, views: bool) -> Any:
    views = views and route(layer)  # a layer that cannot be routed gets decoded arrays instead of views
    if CLASSES[type(cache)].layout == "ring":
        return PackedRotatingKVCache(cache.max_size, cache.keep, spec.text, views=views)
    return PackedKVCache(spec.text, views=views)


PACKED = CacheKind(_wrap_packed, lambda spec: PackedKVCache(spec.text))

KINDS: dict[str, CacheKind] = {
    "raw": CacheKind(lambda cache, *_: cache, None, stock=True),
    "affine": CacheKind(_wrap_affine, _affine, stock=True),
    "classic": CacheKind(_wrap_classic, None),
}

CLASSES: dict[type, CacheClass] = {
    lm_cache.KVCache: CacheClass("growing"),
    lm_cache.QuantizedKVCache: CacheClass("growing", joins=False),
    PackedKVCache: CacheClass("growing"),
    lm_cache.RotatingKVCache: CacheClass("ring"),
    PackedRotatingKVCache: CacheClass("ring"),
    lm_cache.ArraysCache: CacheClass("states", joins=False),
}


def kind_of(spec: CacheSpec) -> CacheKind:
    """Return the kind of a spec."""
    return KINDS.get(spec.family, PACKED)


def layout_of(cache: Any) -> Layout:
    """Return the layout of a cache of mlx-lm's or ours; ``unknown`` for other classes."""
    known = CLASSES.get(type(cache))
    return known.layout if known else "unknown"


def growing(spec: CacheSpec) -> Cache:
    """Return an empty cache that keeps every position, for a layer whose own cache keeps only the last ones.

    Raises:
        BadInput: the spec has no such cache.
    """
    make = kind_of(spec).growing
    if make is None:
        raise BadInput(f"{spec.text} cannot hold what sliding layers evict", "take e8v@... or affine@...")
    return make(spec)
