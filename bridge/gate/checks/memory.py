"""Checks of memory: bytes are those of live arrays, and compared caches have equally many layers."""

import math
import re
from collections.abc import Iterator

from bridge.gate.index import ReportIndex, check
from bridge.reports.kinds import DECODED, KV_QUANT, TORCH_PARITY
from bridge.reports.rows import Buffer, Layer, Memory

_BYTES = {"bool": 1, "bfloat16": 2}


@check("MEMORY_NOT_LIVE", *DECODED)
def rows_list_their_arrays(index: ReportIndex) -> Iterator[str]:
    """If one row lists its live arrays, every row does."""
    without = [row for row in index.rows if row.memory is None]
    if without and len(without) < len(index.rows):
        yield f"a row of {without[0].arm} on {without[0].prompt} lists no arrays"


@check("MEMORY_MISMATCH", *DECODED, KV_QUANT, TORCH_PARITY)
def bytes_are_those_of_arrays(index: ReportIndex) -> Iterator[str]:
    """A cache's bytes are the sum of its arrays."""
    known: dict[int, str | None] = {}
    for i, row in enumerate(index.rows):
        fault = _mismatch(row.memory, known) if row.memory else None
        if fault:
            yield f"row {i}: {fault}"


def _mismatch(memory: Memory, known: dict[int, str | None]) -> str | None:
    """Return where a cache's bytes differ from the sum of its arrays. ``known`` holds each layer's fault."""
    for i, layer in enumerate(memory.layers):
        if id(layer) not in known:
            known[id(layer)] = _layer_mismatch(layer)
        if known[id(layer)]:
            return f"layer {i} {known[id(layer)]}"
    total = sum(layer.nbytes * layer.count for layer in memory.layers)
    return f"{memory.cache_bytes} bytes, and its layers hold {total}" if total != memory.cache_bytes else None


def _layer_mismatch(layer: Layer) -> str | None:
    live_bytes = sum(map(buffer_bytes, layer.arrays))
    return (
        f"counts {layer.nbytes} bytes, and its arrays hold {live_bytes}"
        if live_bytes != layer.nbytes
        else None
    )


def buffer_bytes(array: Buffer) -> int:
    """Return the bytes of an array."""
    return math.prod(array.shape) * (_BYTES.get(array.dtype) or int(re.sub(r"\D", "", array.dtype)) // 8)


@check("MEMORY_MISMATCH", *DECODED, KV_QUANT, TORCH_PARITY)
def compared_caches_have_equal_layers(index: ReportIndex) -> Iterator[str]:
    """All arms' caches have equally many layers."""
    counts: dict[str, set[int]] = {}
    for row in index.rows:
        if row.memory:
            layers = sum(layer.count for layer in row.memory.layers)
            counts.setdefault(row.prompt, set()).add(layers)
    for prompt, several in counts.items():
        if len(several) > 1:
            yield f"caches of {' and '.join(map(str, sorted(several)))} layers are compared on {prompt}"
