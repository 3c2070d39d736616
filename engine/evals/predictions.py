"""How far a cache moves what a model predicts within a prompt: the divergence that recall is too coarse to show."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from engine.cache.protocol import Cache
from engine.evals.needles import Needle
from engine.measure.arm import Arm
from engine.measure.schedule import Turn
from engine.mx import mx, nn, number

PREDICTION = (
    "mean over the positions of the prompts behind two windows of the KL divergence in nats of the prediction from "
    "that with the whole cache"
)

RATIO = "ratio of prompt_kl of arm to that of against, a control, on the same prompts; below 1, arm is nearer to raw"
CONTROLS = ("evicted", "poison")

# Predictions of an arm by prompt.
Predicted = dict[str, list[dict[str, Any]]]


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
        found = wanted if arm is self._whole else self._read(needle.prompt.ids, arm, caches)
        kl = mx.maximum((mx.exp(wanted) * (wanted - found)).sum(axis=-1), 0)
        same = mx.argmax(found, axis=-1) == top
        counted = {
            "n_positions": found.shape[0],
            "sum_kl": number(kl.sum()),
            "same_top": int(number(same.sum())),
        }
        return {"prediction": counted}

    def _read_whole(self, needle: Needle) -> tuple[mx.array, mx.array]:
        found = self._read(needle.prompt.ids, self._whole, self._whole.make(needle))
        return found, mx.argmax(found, axis=-1)

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


def prediction_claims(
    rows: Sequence[dict[str, Any]], arms: Sequence[dict[str, Any]], where: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return each arm's divergence over all prompts, and each candidate's in proportion to each control's.

    Arms without predictions have no claims. The intervals hold the least and the greatest prompt.
    """
    found = {arm["name"]: _by_prompt(rows, arm["name"]) for arm in arms}
    claims = []
    for arm in arms:
        mine = found[arm["name"]]
        if mine and arm["oracle"]:
            each = [_mean(made) for made in mine.values()]
            claims.append(
                {
                    "name": "prompt_kl", "arm": arm["name"], "against": arm["oracle"], "value": _overall(mine),
                    "interval": [min(each), max(each)], "definition": PREDICTION, "where": where,
                }
            )  # fmt: skip
    return [*claims, *_ratios(found, arms, where)]


def _ratios(
    found: Mapping[str, Predicted], arms: Sequence[dict[str, Any]], where: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield how far each candidate moves predictions beside each control; a control that moves none is no measure."""
    controls = [arm["name"] for arm in arms if arm["role"] in CONTROLS]
    for arm in arms:
        mine = found[arm["name"]] if arm["role"] == "candidate" else {}
        for control in controls:
            theirs = found[control]
            if not mine or any(_mean(theirs[prompt]) == 0 for prompt in mine):
                continue
            each = [_mean(made) / _mean(theirs[prompt]) for prompt, made in mine.items()]
            yield {
                "name": "prompt_kl_ratio", "arm": arm["name"], "against": control,
                "value": _overall(mine) / _overall(theirs),
                "interval": [min(each), max(each)], "definition": RATIO, "where": where,
            }  # fmt: skip


def _by_prompt(rows: Sequence[dict[str, Any]], arm: str) -> Predicted:
    """Return the predictions in an arm's counted rows by their prompts."""
    found: Predicted = {}
    for row in rows:
        if row["arm"] == arm and not row.get("warmup") and "prediction" in row:
            found.setdefault(row["prompt"], []).append(row["prediction"])
    return found


def _overall(found: Predicted) -> float:
    return _mean([one for made in found.values() for one in made])


def _mean(predictions: Sequence[dict[str, Any]]) -> float:
    """Return the mean divergence over the positions of predictions."""
    return float(sum(one["sum_kl"] for one in predictions) / sum(one["n_positions"] for one in predictions))
