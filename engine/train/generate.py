"""Text written by a target itself: what its drafter has to foresee."""

from collections.abc import Callable

import numpy as np

from engine.lm import cache as lm_cache
from engine.mx import mx


def continuations(
    model,
    prompts: np.ndarray,
    count: int,
    *,
    temperatures: np.ndarray,
    seed: int = 0,
) -> np.ndarray:
    """Return ``prompts`` ``[rows, P]`` with ``count`` tokens more: ``[rows, P + count]``.

    Args:
        model: an mlx-lm model.
        prompts: token ids, all rows of one length.
        count: how many tokens to add.
        temperatures: one a row; 0 takes the most probable token.
        seed: for the rows that are sampled.
    """
    caches = lm_cache.make_prompt_cache(model)
    key = mx.random.key(seed)
    cold = mx.array(temperatures <= 0)
    scale = mx.array(np.where(temperatures > 0, 1 / np.maximum(temperatures, 1e-3), 1.0).astype(np.float32))[
        :, None
    ]
    tokens, made = mx.array(prompts), []
    for _ in range(count):
        logits = model(tokens, cache=caches)[:, -1].astype(mx.float32)
        key, now = mx.random.split(key)
        drawn = mx.random.categorical(logits * scale, key=now)
        tokens = mx.where(cold, mx.argmax(logits, axis=-1), drawn)[:, None]
        mx.eval(tokens)
        made.append(np.asarray(tokens))
    return np.concatenate([prompts, *made], axis=1)


def rows(
    model,
    openings: np.ndarray,
    *,
    length: int,
    batch: int = 64,
    seed: int = 0,
    say: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Return ``openings`` ``[count, P]`` with what the model writes after them, ``[count, length]`` of uint32.

    Half of the rows are greedy, half sampled at temperatures between 0.4 and 1, because greedy text of a
    small model runs into loops, from which little is learned.
    """
    rng = np.random.default_rng(seed)
    done = [np.zeros((0, length), np.uint32)]
    for start in range(0, len(openings), batch):
        part = openings[start : start + batch]
        greedy = np.arange(len(part)) % 2 == 0
        temperatures = np.where(greedy, 0.0, rng.uniform(0.4, 1.0, len(part)))
        made = continuations(
            model, part, length - part.shape[1], temperatures=temperatures, seed=seed + start
        )
        done.append(made.astype(np.uint32))
        if say:
            say(start + len(part))
    return np.concatenate(done)
