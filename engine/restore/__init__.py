"""Restored prefill: caches that evict all but a sink and a window, and restore evicted positions for attention."""

from engine.restore.cache import RestoredCache, restored_caches
from engine.restore.sources import Compressed, Exact, Learned, Noise, Source

__all__ = ["Compressed", "Exact", "Learned", "Noise", "RestoredCache", "Source", "restored_caches"]
