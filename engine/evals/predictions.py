"""Measures how far a cache moves a model's predictions within a prompt: a finer measure than recall."""

from functools import lru_cache
from typing import Any

from engine.cache.protocol import Cache
from engine.evals.needles import Needle
from engine.harness.arm import Arm, Turn
from engine.mx import mx, nn, number


def log_probabilities(
    model: nn.Module, tokens: mx.array, caches: list[Cache], *, chunk: int, behind: int = 0
) -> mx.array:
    """Return the log-probabilities after the tokens from ``behind`` on, float32 ``[tokens - behind, vocabulary]``.

    ``tokens``, int ``[1, n]``, are read ``chunk`` at a time; ``behind`` must be a multiple of ``chunk``.
    """
    parts = []
    for start in range(0, tokens.shape[1], chunk):
        logits = model(tokens[:, start : start + chunk], cache=caches)[0].astype(mx.float32)
        if start >= behind:
            parts.append(logits - mx.logsumexp(logits, axis=-1, keepdims=True))
        mx.eval(logits, *parts[-1:])
    return mx.concatenate(parts)


def distance(raw: mx.array, other: mx.array) -> dict[str, Any]:
    """Return the summed distance of log-probabilities ``[positions, vocabulary]`` from the raw cache's."""
    kl = mx.maximum((mx.exp(raw) * (raw - other)).sum(axis=-1), 0)
    same_top = mx.argmax(raw, axis=-1) == mx.argmax(other, axis=-1)
    return {
        "n_positions": raw.shape[0],
        "sum_kl": number(kl.sum()),
        "same_top": int(number(same_top.sum())),
    }


class Predictions:
    """Reads each prompt once more with an arm's caches, and compares its predictions with the whole cache's.

    Prompts are read ``window`` tokens at once. Behind two windows, positions are evicted.
    """

    def __init__(self, model: nn.Module, whole: Arm[list[Cache]], window: int) -> None:
        self._model, self._whole, self._window = model, whole, window
        self._of_whole = lru_cache(maxsize=1)(lambda needle: self._read(needle, whole, whole.make(needle)))
        self._scored: dict[tuple[str, str], dict[str, Any]] = {}

    def __call__(self, turn: Turn[Arm[list[Cache]], Needle]) -> dict[str, Any]:
        """Return a row's ``prediction``; nothing if the arm keeps no cache, or the prompt is too short."""
        arm, needle = turn.arm, turn.prompt
        if (arm.name, needle.id) not in self._scored:
            caches, scored = arm.make(needle), {}
            if caches and len(needle.prompt.ids) > 2 * self._window:
                whole = self._of_whole(needle)
                own = whole if arm is self._whole else self._read(needle, arm, caches)
                scored = {"prediction": distance(whole, own)}
            self._scored[arm.name, needle.id] = scored
        return self._scored[arm.name, needle.id]

    def _read(self, needle: Needle, arm: Arm[list[Cache]], caches: list[Cache]) -> mx.array:
        tokens = mx.array(list(needle.prompt.ids))[None]
        with arm.attention():
            return log_probabilities(self._model, tokens, caches, chunk=self._window, behind=2 * self._window)
