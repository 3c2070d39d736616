"""Greedy decoding of one answer by mlx-lm's own loop, as a report's row."""

import gc
import time
from collections.abc import Collection, Sequence
from typing import Any

from engine.lm import generate_step
from engine.measure import memory
from engine.mx import mx, nn, tree

STOCK_LOOP = "mlx_lm.generate_step"
CHUNK = 512  # tokens of a prompt at once


def greedy(
    model: nn.Module,
    ids: Sequence[int],
    caches: list[Any],
    most: int,
    ends: Collection[int],
    chunk: int = CHUNK,
) -> dict[str, Any]:
    """Decode after a prompt, over caches that are given.

    Args:
        model: an mlx-lm model.
        ids: the prompt.
        caches: fresh ones, one a layer.
        most: tokens.
        ends: tokens that end an answer; the one that did is among those returned.
        chunk: tokens of the prompt at once.

    Returns:
        ``started_s`` by the performance counter, ``tokens``, ``stop``, ``memory`` and the times of a row of
        ``kakeya.recall``; seconds.
    """
    gc.collect()
    mx.synchronize()
    mx.reset_peak_memory()
    tokens, times = [], []
    start = time.perf_counter()
    found = generate_step(mx.array(ids), model, max_tokens=most, prompt_cache=caches, prefill_step_size=chunk)
    for token, _ in found:
        times.append(time.perf_counter() - start)
        tokens.append(int(token))
        if token in ends:
            break
    found.close()
    mx.eval([leaf for cache in caches for leaf in _leaves(cache)])
    return {
        "started_s": start,
        "prefill_s": times[0],
        "decode_s": times[-1] - times[0],
        "decode_tokens": len(tokens) - 1,
        "e2e_s": times[-1],
        "tokens": tokens,
        "stop": "eos" if tokens[-1] in ends else "length",
        "memory": memory.live(caches, mx.get_peak_memory()),
    }


def _leaves(cache: Any) -> list[mx.array]:
    return [leaf for _, leaf in tree.tree_flatten(cache.state) if isinstance(leaf, mx.array)]
