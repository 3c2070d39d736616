"""Measures the row of one run: its times, its tokens, and the bytes of its caches."""

import gc
import time
from collections.abc import Collection, Sequence
from typing import Any

from engine.cache.protocol import Cache
from engine.dflash.step import Step
from engine.harness import cache_bytes
from engine.harness.arm import Arm
from engine.lm import generation_stream
from engine.mx import mx

CHUNK = 512  # tokens of a prompt to run at once

Row = dict[str, Any]


def decode(
    arm: Arm[list[Cache]],
    ids: Sequence[int],
    most: int,
    ends: Collection[int],
    caches: list[Cache],
    *,
    profile: bool = False,
) -> tuple[Row, list[Step]]:
    """Decode once after a prompt; return the run's row without its identifying fields, and its steps.

    ``decode_s`` is the time from the first token to the last; ``decode_tokens`` counts all tokens except the first.
    If the first round of a loop gives several tokens, ``decode_s`` includes that whole round: otherwise some tokens
    would take no time.

    The token of ``ends`` that ended the answer is among the row's. ``caches`` are fresh ones, or an empty list that the
    loop fills with those it makes itself. With ``profile``, drafting and verifying are told apart.
    """
    begin = arm.profile if profile else arm.decode
    if begin is None:
        raise TypeError(f"the arm {arm.name} does not decode")
    _rest()
    mx.reset_peak_memory()
    steps: list[Step] = []
    at: list[float] = []  # seconds until the end of each step
    with arm.attention():
        stream = begin(ids, most, caches)
        started = time.perf_counter()
        for step in stream:
            at.append(time.perf_counter() - started)
            steps.append(step)
            if step.tokens and step.tokens[-1] in ends:  # even if the loop itself goes on
                break
        del stream  # this closes it
    mx.eval([array for cache in caches for array in cache_bytes.arrays(cache)])
    tokens = [token for step in steps for token in step.tokens]
    end = at[max(i for i, step in enumerate(steps) if step.tokens)]
    prefill = at[0] if len(steps[0].tokens) == 1 else steps[0].prefill
    reason = "stop" if steps[-1].finish_reason == "stop" else "length"
    row = {
        "started_s": started,
        "prefill_s": prefill,
        "decode_s": end - prefill,
        "decode_tokens": len(tokens) - 1,
        "e2e_s": end,
        "tokens": tokens,
        "stop": "eos" if tokens[-1] in ends else reason,
        "memory": cache_bytes.live(caches, mx.get_peak_memory()),
    }
    return row, steps


def _rest() -> None:
    """Finish the previous arm's pending work (mlx-lm computes one token ahead), and free its memory."""
    mx.synchronize()
    mx.synchronize(generation_stream)
    gc.collect()
    mx.clear_cache()
