"""Generates text with a target itself, for training its drafter."""

from collections.abc import Callable

import numpy as np

from engine.lm import cache as lm_cache
from engine.mx import mx, nn


def continuations(
    model: nn.Module,
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
    tokens, steps = mx.array(prompts), []
    for _ in range(count):
        logits = model(tokens, cache=caches)[:, -1].astype(mx.float32)
        key, now = mx.random.split(key)
        drawn = mx.random.categorical(logits * scale, key=now)
        tokens = mx.where(cold, mx.argmax(logits, axis=-1), drawn)[:, None]
        mx.eval(tokens)
        steps.append(np.asarray(tokens))
    return np.concatenate([prompts, *steps], axis=1)


def rows(
    model: nn.Module,
    openings: np.ndarray,
    *,
    length: int,
    shortest: int | None = None,
    greedy: float = 0.75,
    batch: int = 64,
    seed: int = 0,
    say: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Return ``openings`` ``[count, P]`` with what the model writes after them, ``[count, length]`` of uint32.

    Args:
        model: an mlx-lm model.
        openings: token ids. Of each batch only the last few are used where ``shortest`` says so.
        length: tokens of a row.
        shortest: openings are between this and P tokens long, a length a batch; None for P.
        greedy: the share of rows that are what greedy decoding writes. The rest is sampled at temperatures
            between 0.4 and 1, because greedy text of a small model runs into loops.
        batch: rows that are written at a time.
        seed: of lengths, temperatures and samples.
        say: gets the number of rows written so far.
    """
    rng = np.random.default_rng(seed)
    longest = openings.shape[1]
    done = [np.zeros((0, length), np.uint32)]
    for start in range(0, len(openings), batch):
        known = longest if shortest is None else int(rng.integers(min(shortest, longest), longest + 1))
        part = openings[start : start + batch, longest - known :]
        cold = np.arange(len(part)) < round(greedy * len(part))
        temperatures = np.where(cold, 0.0, rng.uniform(0.4, 1.0, len(part)))
        written = continuations(model, part, length - known, temperatures=temperatures, seed=seed + start)
        done.append(written.astype(np.uint32))
        if say:
            say(start + len(part))
    return np.concatenate(done)
