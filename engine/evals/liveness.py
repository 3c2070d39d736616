"""Counters that show what caches did, read from the caches themselves after a run."""

from collections.abc import Sequence
from typing import Any

from engine.cache.protocol import Cache
from engine.cache.wrapping import flat
from engine.lm import cache as lm_cache

NAMES = (
    *("injected_positions", "raw_positions", "packed_bytes", "codec_failures"),
    *("evicted_positions", "injected_reads"),
)


def counters(caches: Sequence[Cache]) -> dict[str, int]:
    """Return the ``counters`` of a report's row.

    - ``injected_positions``: over all layers, positions that went into the cache as a codec, a control or a
      reconstruction made them (sliding layers may have dropped some since);
    - ``raw_positions``: the other ones;
    - ``packed_bytes``: of the arrays that hold codes;
    - ``codec_failures``: updates that a codec did not do;
    - ``evicted_positions``: that a restored cache has let go, and ``injected_reads``: how often attention read
      one of them as it was given back.
    """
    total = dict.fromkeys(NAMES, 0)
    for cache in flat(caches):
        positions, nbytes, failures = _look(cache)
        figures = {
            "injected_positions": positions,
            "raw_positions": max(0, getattr(cache, "offset", 0) - getattr(cache, "evicted", positions)),
            "packed_bytes": nbytes,
            "codec_failures": failures,
            "evicted_positions": getattr(cache, "evicted", 0),
            "injected_reads": getattr(cache, "injected_reads", 0),
        }
        total = {name: total[name] + figures[name] for name in total}
    return total


def _look(cache: Any) -> tuple[int, int, int]:
    """Return the positions of one cache that a codec made, the bytes of its codes, and its failures."""
    positions = getattr(cache, "injected_positions", None)
    if positions is not None:
        inner = getattr(getattr(cache, "source", None), "inner", None)
        return positions, 0 if inner is None else _look(inner)[1], 0
    if isinstance(cache, lm_cache.QuantizedKVCache) and cache.keys is not None:
        return cache.offset, sum(x.nbytes for pair in (cache.keys, cache.values) for x in pair), 0
    coded: tuple[int, int, int] = cache.coded() if hasattr(cache, "coded") else (0, 0, 0)
    return coded
