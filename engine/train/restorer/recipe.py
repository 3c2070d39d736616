"""Trains a restorer for any target that mlx-lm loads.

The target reads rows of text exactly. Then it reads them again with all positions before its window as the restorer
gives them. The restorer learns to match the exact keys and values (the error), and to leave the target's predictions
unchanged in the second reading (the divergence). The target's weights get no gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from engine.errors import BadInput
from engine.lm import cache as lm_cache
from engine.mx import mx, nn
from engine.restore.learned import blocks, check, embed_of, project
from engine.restore.restorer import Restorer, normed
from engine.restore.sources import Pair, as_cached
from engine.train import run
from engine.train.optimizer import TrainedWeights


@dataclass(frozen=True, kw_only=True)
class RestorerPlan(run.TrainingPlan):
    """The settings of a training. One step uses ``rows`` rows of ``length`` tokens."""

    rows: int = 2
    length: int = 512
    alone: int = 0  # this many first steps learn only the error, at a third of the cost of learning both
    sink: int = 4  # number of first positions that stay
    window: int = 64  # number of last positions that stay, and the length of a chunk
    # The weight of a nat of divergence, relative to the error, which is 1 for a restorer that returns zeros.
    divergence: float = 4.0


class Read(NamedTuple):
    """A target's results for rows: normed embeddings, each layer's keys and values, and logits."""

    tokens: mx.array
    embedded: mx.array
    exact: list[Pair]
    logits: mx.array


class RestorerLearner(TrainedWeights[RestorerPlan]):
    """Trains a restorer in place for a target; BadInput if rows have no positions behind the plan's window."""

    def __init__(self, restorer: Restorer, target: nn.Module, plan: RestorerPlan) -> None:
        if plan.length <= 2 * plan.window + plan.sink:
            message = f"rows of {plan.length} tokens have nothing behind a window of {plan.window}"
            raise BadInput(message, "more than two windows")
        check(restorer, target)
        super().__init__(restorer, self.loss, plan)
        self.restorer, self.target = restorer, target
        self.layers = restorer.config.layers
        self.blocks, self.embed = blocks(target, self.layers), embed_of(target)

    def learn(self, batch: Read, step: int) -> dict[str, float]:
        """Take one step; return the loss, the error and the divergence before the step."""
        return dict(zip(("loss", "error", "divergence"), self.step(step, batch, step), strict=True))

    def read(self, rows: np.ndarray) -> Read:
        """Let the target read rows ``[rows, length]`` exactly."""
        tokens, caches = mx.array(rows.astype(np.int32)), lm_cache.make_prompt_cache(self.target)
        logits = self.target(tokens, cache=caches)
        exact = [caches[i].keys_and_values() for i in self.layers]
        batch = Read(tokens, normed(self.embed(tokens)), exact, logits)
        mx.eval(batch.embedded, exact, logits)
        return batch

    def loss(self, rows: Read, step: int) -> tuple[mx.array, mx.array, mx.array]:
        """Return the loss of step ``step``, and its parts: mean relative error, and divergence in nats or 0."""
        restored = self.restored_pairs(rows)
        each = errors(restored, rows.exact)
        error = sum(each[1:], start=each[0]) / len(each)
        if step < self.plan.alone:
            return error, mx.stop_gradient(error), mx.zeros(())
        divergence = self.divergence(rows, restored)
        loss = error + self.plan.divergence * divergence
        return loss, mx.stop_gradient(error), mx.stop_gradient(divergence)

    def restored_pairs(self, rows: Read) -> list[Pair]:
        """Return the restored keys and values of all positions in all restored layers, in the form of caches."""
        states, pairs = self.restorer.states(rows.embedded), []
        for i, (block, exact) in enumerate(zip(self.blocks, rows.exact, strict=True)):
            raw = project(block, self.restorer.inputs(i, rows.embedded, states))
            pairs.append(as_cached(block.self_attn, raw, exact, 0))
        return pairs

    def divergence(self, rows: Read, restored: Sequence[Pair]) -> mx.array:
        """Return KL(original || restored) in nats, the mean over positions after an eviction."""
        plan, caches = self.plan, lm_cache.make_prompt_cache(self.target)
        for i, pair in zip(self.layers, restored, strict=True):
            caches[i] = WholeRows(pair, plan.sink, plan.window)
        first = 2 * plan.window
        predicted = _log_probs(self.target(rows.tokens, cache=caches)[:, first:])
        wanted = _log_probs(rows.logits[:, first:])
        return (mx.exp(wanted) * (wanted - predicted)).sum(axis=-1).mean()


class WholeRows:
    """One layer's cache, in mlx-lm's protocol, to run whole rows at once as a restored prefill would read them.

    With chunks as long as the window, a token sees its own chunk, the previous chunk and the sink exactly, and the
    positions between as restored. So every position is returned twice, exact and restored, and the mask selects one of
    them. ``pair`` has the restored keys and values of all positions, ``[rows, heads, length, dim]``.
    """

    offset = 0

    def __init__(self, pair: Pair, sink: int, window: int) -> None:
        self.pair, self.sink, self.window = pair, sink, window

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Pair:
        """Return the exact keys and values, followed by the restored ones."""
        given_keys, given_values = self.pair
        return mx.concatenate([keys, given_keys], axis=2), mx.concatenate([values, given_values], axis=2)

    def make_mask(
        self,
        rows: int,
        window_size: int | None = None,
        return_array: bool = True,  # noqa: ARG002 - it is always one
    ) -> mx.array:
        """Return which of the exact and restored positions each position sees, ``[length, 2 * length]``."""
        if window_size is not None:
            raise BadInput("a sliding layer cannot be restored", "leave its own cache to it")
        at = mx.arange(rows)
        chunk_before = (at // self.window - 1)[:, None] * self.window
        causal = at[None] <= at[:, None]
        in_window = (at < self.sink)[None] | (at[None] >= chunk_before)
        return mx.concatenate([causal & in_window, causal & ~in_window], axis=1)


def errors(restored: Sequence[Pair], exact: Sequence[Pair]) -> list[mx.array]:
    """Return sum(error^2) / sum(x^2) of each layer's keys, then of its values, layer by layer."""
    return [
        mx.square(ours - theirs).sum() / mx.square(theirs).sum()
        for pairs in zip(restored, exact, strict=True)
        for ours, theirs in zip(*pairs, strict=True)
    ]


def _log_probs(logits: mx.array) -> mx.array:
    logits = logits.astype(mx.float32)
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)
