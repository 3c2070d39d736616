"""Text written by a target itself: what its drafter has to foresee."""

from collections.abc import Callable, Iterator

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
    say: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Return ``prompts`` ``[rows, P]`` with ``count`` tokens more: ``[rows, P + count]``.

    Args:
        model: an mlx-lm model.
        prompts: token ids, all rows of one length.
        temperatures: one a row; 0 takes the most probable token.
        seed: for the rows that are sampled.
        say: called with the number of tokens done, now and then.
    """
    caches = lm_cache.make_prompt_cache(model)
    key = mx.random.key(seed)
    cold = mx.array(temperatures <= 0)
    scale = mx.array(np.where(temperatures > 0, 1 / np.maximum(temperatures, 1e-3), 1.0).astype(np.float32))[
        :, None
    ]
    tokens, made = mx.array(prompts), []
    for done in range(count):
        logits = model(tokens, cache=caches)[:, -1].astype(mx.float32)
        key, now = mx.random.split(key)
        drawn = mx.random.categorical(logits * scale, key=now)
        tokens = mx.where(cold, mx.argmax(logits, axis=-1), drawn)[:, None]
        mx.eval(tokens)
        made.append(np.asarray(tokens))
        if say and done % 32 == 0:
            say(done)
    return np.concatenate([prompts, *made], axis=1)


def rows(
    model,
    windows: Iterator[np.ndarray],
    *,
    count: int,
    prompt: int,
    length: int,
    batch: int = 64,
    seed: int = 0,
    say: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Return ``count`` rows ``[count, length]`` of uint32: ``prompt`` tokens of a window, the rest the target's.

    Half of the rows are greedy, half sampled at temperatures between 0.4 and 1, because greedy text of a
    small model runs into loops, from which little is learned.
    """
    rng = np.random.default_rng(seed)
    batch = max(1, min(batch, count))
    done = []
    while len(done) * batch < count:
        starts = np.stack([next(windows)[:prompt] for _ in range(batch)])
        temperatures = np.where(rng.random(batch) < 0.5, 0.0, rng.uniform(0.4, 1.0, batch))
        made = continuations(model, starts, length - prompt, temperatures=temperatures, seed=seed + len(done))
        done.append(made.astype(np.uint32))
        if say:
            say(min(count, len(done) * batch))
    return np.concatenate(done)[:count] if done else np.zeros((0, length), np.uint32)
