"""Counters of what caches did, read from the caches themselves after a run."""

from collections.abc import Sequence
from typing import Any

from engine.cache.protocol import Cache
from engine.cache.wrapping import flat
from engine.lm import cache as lm_cache


def counters(caches: Sequence[Cache]) -> dict[str, int]:
    """Return the ``counters`` of a report's row.

    - ``injected_positions``: over all layers, positions whose keys and values a codec, control or reconstruction
      changed (sliding layers may have dropped some since);
    - ``raw_positions``: all other positions;
    - ``packed_bytes``: bytes of the arrays of codes;
    - ``codec_failures``: updates on which a codec failed;
    - ``evicted_positions``: positions that a restored cache evicted, and ``injected_reads``: how often attention
      read one of them as restored.
    """
    every = [(cache, *_look(cache)) for cache in flat(caches)]
    raw = (getattr(cache, "offset", 0) - getattr(cache, "evicted", coded) for cache, coded, _, _ in every)
    return {
        "injected_positions": sum(positions for _, positions, _, _ in every),
        "raw_positions": sum(max(0, positions) for positions in raw),
        "packed_bytes": sum(nbytes for _, _, nbytes, _ in every),
        "codec_failures": sum(failures for *_, failures in every),
        "evicted_positions": sum(getattr(cache, "evicted", 0) for cache, *_ in every),
        "injected_reads": sum(getattr(cache, "injected_reads", 0) for cache, *_ in every),
    }


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
