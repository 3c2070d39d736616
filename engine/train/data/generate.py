"""Generates text with a target itself, for training its drafter."""

from collections.abc import Callable

import numpy as np

from engine.lm import cache as lm_cache
from engine.mx import mx, nn

# The share of rows that are decoded greedily. The rest is sampled at temperatures between 0.4 and 1, because a small
# model's greedy text runs into loops.
GREEDY = 0.75
BATCH = 64  # rows that are written at a time


def rows(
    model: nn.Module,
    openings: np.ndarray,
    *,
    length: int,
    shortest: int | None = None,
    seed: int = 0,
    say: Callable[[int], None] = lambda _: None,
) -> np.ndarray:
    """Return ``openings`` ``[count, P]`` with the model's continuations, ``[count, length]`` of uint32.

    Of each batch's openings, the last ``shortest`` to P tokens are used, one length a batch; None stands for P. ``say``
    gets the number of rows written so far.
    """
    rng = np.random.default_rng(seed)
    longest = openings.shape[1]
    done = [np.zeros((0, length), np.uint32)]
    for start in range(0, len(openings), BATCH):
        known = longest if shortest is None else int(rng.integers(min(shortest, longest), longest + 1))
        part = openings[start : start + BATCH, longest - known :]
        cold = np.arange(len(part)) < round(GREEDY * len(part))
        temperatures = np.where(cold, 0.0, rng.uniform(0.4, 1.0, len(part)))
        done.append(_continued(model, part, length - known, temperatures, seed + start).astype(np.uint32))
        say(start + len(part))
    return np.concatenate(done)


def _continued(
    model: nn.Module, prompts: np.ndarray, count: int, temperatures: np.ndarray, seed: int
) -> np.ndarray:
    """Return ``prompts`` ``[rows, P]`` with ``count`` tokens more; temperature 0 takes the most probable one."""
    caches = lm_cache.make_prompt_cache(model)
    key = mx.random.key(seed)
    cold = mx.array(temperatures <= 0)
    factors = np.where(temperatures > 0, 1 / np.maximum(temperatures, 1e-3), 1.0).astype(np.float32)
    scale = mx.array(factors)[:, None]
    tokens, steps = mx.array(prompts), []
    for _ in range(count):
        logits = model(tokens, cache=caches)[:, -1].astype(mx.float32)
        key, now = mx.random.split(key)
        drawn = mx.random.categorical(logits * scale, key=now)
        tokens = mx.where(cold, mx.argmax(logits, axis=-1), drawn)[:, None]
        mx.eval(tokens)
        steps.append(np.asarray(tokens))
    return np.concatenate([prompts, *steps], axis=1)
