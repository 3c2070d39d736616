"""Decodes greedily and takes the times, for both backends alike. Imports neither MLX nor torch."""

import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bridge.common import host

CHUNK = 512  # tokens of a prompt to read at once
_DIGITS = 6  # of a step's seconds
_CODE = 16  # characters of a row's digest

# From the next tokens of one sequence to the likeliest token after them.
Step = Callable[[Sequence[int]], int]


def decode(step: Step, ids: Sequence[int], count: int) -> dict[str, Any]:
    """Decode ``count`` tokens after a prompt, past any token that ends an answer; return the times of a row."""
    busy, began = time.process_time(), time.perf_counter()
    for part in parts_of(ids):
        token = step(part)
    at = [time.perf_counter()]
    prefilled = time.process_time()
    tokens = [token]
    while len(tokens) < count:
        tokens.append(step(tokens[-1:]))
        at.append(time.perf_counter())
    steps = [round(later - earlier, _DIGITS) for earlier, later in itertools.pairwise(at)]
    return {
        "prefill_s": at[0] - began,
        "decode_s": at[-1] - at[0],
        "decode_tokens": count - 1,
        "e2e_s": at[-1] - began,
        "prefill_processor_s": prefilled - busy,
        "processor_s": time.process_time() - prefilled,
        "step_s": steps,
        "tokens": tokens,
        "stop": "length",
        "process_peak_bytes": host.process_peak_bytes(),
    }


def parts_of(ids: Sequence[int]) -> Iterable[Sequence[int]]:
    """Yield a prompt in the parts in which it is read."""
    return (ids[start : start + CHUNK] for start in range(0, len(ids), CHUNK))


def digests_of(rows: Any) -> list[str]:
    """Return the digests of the rows of codes in a NumPy array, uint8 ``[n, bytes]``."""
    return [hashlib.sha256(row.tobytes()).hexdigest()[:_CODE] for row in rows]
