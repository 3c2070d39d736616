"""KV caches for mlx-lm: packed, round-trip and quantized, by one spec."""

from engine.cache.factory import make_caches
from engine.cache.packed import LatticeKVCache, LatticeRotatingKVCache
from engine.cache.roundtrip import KakeyaLatticeMLXCache, make_kakeya_caches

__all__ = [
    "KakeyaLatticeMLXCache",
    "LatticeKVCache",
    "LatticeRotatingKVCache",
    "make_caches",
    "make_kakeya_caches",
]
