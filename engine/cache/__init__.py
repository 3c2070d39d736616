"""KV caches for mlx-lm: packed, round-trip and quantized, by one spec."""

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
