"""How far a cache moves a model's predictions within a prompt: the divergence, which is finer than recall."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from engine.cache.protocol import Cache
from engine.evals.needles import Needle
from engine.measure.arm import Arm
from engine.measure.schedule import Turn
from engine.mx import mx, nn, number


class Predictions:
    """Reads each prompt once more with an arm's caches, and compares its predictions with the whole cache's.

    Args:
        model: the target.
        whole: the arm with the whole cache.
        window: tokens of a prompt at once. Behind two of them, positions are evicted.
    """

    def __init__(self, model: nn.Module, whole: Arm[list[Cache]], window: int) -> None:
        self._model, self._whole, self._window = model, whole, window
        self._known = lru_cache(maxsize=1)(self._read_whole)
        self._scored: dict[tuple[str, str], dict[str, Any]] = {}

    def __call__(self, turn: Turn[Arm[list[Cache]], Needle]) -> dict[str, Any]:
        """Return a row's ``prediction``; nothing if the arm keeps no cache, or the prompt is too short."""
        name = turn.arm.name, turn.prompt.prompt.id
        if name not in self._scored:
            self._scored[name] = self._score(turn.arm, turn.prompt)
        return self._scored[name]

    def _score(self, arm: Arm[list[Cache]], needle: Needle) -> dict[str, Any]:
        caches = arm.make(needle)
        if not caches or len(needle.prompt.ids) <= 2 * self._window:
            return {}
        wanted, top = self._known(needle)
        predicted = wanted if arm is self._whole else self._read(needle.prompt.ids, arm, caches)
        kl = mx.maximum((mx.exp(wanted) * (wanted - predicted)).sum(axis=-1), 0)
        same = mx.argmax(predicted, axis=-1) == top
        counted = {
            "n_positions": predicted.shape[0],
            "sum_kl": number(kl.sum()),
            "same_top": int(number(same.sum())),
        }
        return {"prediction": counted}

    def _read_whole(self, needle: Needle) -> tuple[mx.array, mx.array]:
        predicted = self._read(needle.prompt.ids, self._whole, self._whole.make(needle))
        return predicted, mx.argmax(predicted, axis=-1)

    def _read(self, ids: Sequence[int], arm: Arm[list[Cache]], caches: list[Cache]) -> mx.array:
        """Return log-probabilities behind two windows, float32 ``[positions, vocabulary]``."""
        tokens, parts = mx.array(list(ids))[None], []
        with arm.attention():
            for start in range(0, len(ids), self._window):
                logits = self._model(tokens[:, start : start + self._window], cache=caches)[0].astype(
                    mx.float32
                )
                if start >= 2 * self._window:
                    parts.append(logits - mx.logsumexp(logits, axis=-1, keepdims=True))
                mx.eval(logits, *parts[-1:])
        return mx.concatenate(parts)
