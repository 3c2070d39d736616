"""KV caches for mlx-lm: packed, round-trip and quantized, by one spec. ``engine.cache.spec`` needs no MLX."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.cache.factory import make_caches
    from engine.cache.packed import PackedKVCache, PackedRotatingKVCache
    from engine.cache.roundtrip import KakeyaLatticeMLXCache, make_kakeya_caches

__all__ = [
    "KakeyaLatticeMLXCache",
    "PackedKVCache",
    "PackedRotatingKVCache",
    "make_caches",
    "make_kakeya_caches",
]

_MODULES = {
    "KakeyaLatticeMLXCache": "roundtrip",
    "PackedKVCache": "packed",
    "PackedRotatingKVCache": "packed",
    "make_caches": "factory",
    "make_kakeya_caches": "roundtrip",
}


def __getattr__(name: str) -> Any:
    """Import a cache, and MLX with it, only when it is used."""
    if name in _MODULES:
        return getattr(import_module(f"engine.cache.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
