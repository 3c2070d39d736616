"""Train a restorer for any target that mlx-lm loads.

The target reads rows of text as they are. The restorer learns to give the keys and values that its layers hold
(their error), and to leave what the target then says unchanged when it reads the rows again with everything
behind its window as the restorer gives it (the divergence). No gradient goes to the target's weights.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.errors import BadInput
from engine.lm import cache as lm_cache
from engine.mx import mx, nn, optimizers
from engine.restore.learned import blocks, check, embed_of, project
from engine.restore.restorer import Restorer, normed
from engine.restore.sources import Like, Pair, as_cached
from engine.train import checkpoint
from engine.train.draft import Source
from engine.train.restored import WholeRows
from engine.train.schedule import MATRIX, Schedule


@dataclass(frozen=True, kw_only=True)
class Plan(Schedule):
    """How long and how fast. One step is ``rows`` rows of ``length`` tokens.

    The target reads ``pool`` rows at a time, and each serves ``uses`` steps.

    Attributes:
        alone: the first steps learn the error alone, which costs a third of a step with both.
        sink: first positions that stay. window: last ones, and the length of a chunk.
        divergence: what a nat of it weighs beside the error, which is 1 for a restorer that gives zeros.
    """

    rows: int = 2
    length: int = 512
    pool: int = 32
    uses: int = 4
    alone: int = 0
    sink: int = 4
    window: int = 64
    divergence: float = 4.0
    matrix_rate: float = 0.012
    other_rate: float = 1.5e-3
    warm_up: int = 50
    clip: float = 1.0
    seed: int = 0


class Read(NamedTuple):
    """What a target says of rows: their normed embeddings, each layer's keys and values, and its logits."""

    tokens: mx.array
    embedded: mx.array
    held: list[Pair]
    logits: mx.array


class Trainer:
    """One run in a folder; see :mod:`engine.train.checkpoint`.

    Args:
        restorer: what learns. target: an mlx-lm model; it stays as it is.
        source: from a random generator and a number of rows to token ids ``[rows, length]``.
        folder: where checkpoint and log go. Raises BadInput where another plan was begun there.
    """

    def __init__(
        self, restorer: Restorer, target: nn.Module, source: Source, folder: Path, plan: Plan
    ) -> None:
        if plan.length <= 2 * plan.window + plan.sink:
            raise BadInput(
                f"rows of {plan.length} tokens have nothing behind a window of {plan.window}",
                "more than two windows",
            )
        check(restorer, target)
        self.restorer, self.target, self.source, self.folder, self.plan = (
            restorer, target, source, folder, plan,
        )  # fmt: skip
        self.layers = restorer.config.layers
        self.blocks, self.embed = blocks(target, self.layers), embed_of(target)
        self.optimizer = optimizers.MultiOptimizer(
            [
                optimizers.Muon(plan.matrix_rate, weight_decay=0.01),
                optimizers.AdamW(plan.other_rate, betas=[0.9, 0.97], weight_decay=0.0),
            ],
            [lambda _, weight: weight.ndim == MATRIX],
        )
        self.value_and_grad = nn.value_and_grad(restorer, self.loss)
        self.pool: tuple[int, list[Read]] = (-1, [])
        self.step = checkpoint.resume(folder, plan, restorer, self.optimizer)

    def save(self) -> None:
        """Write the checkpoint."""
        checkpoint.save(self.folder, self.plan, self.restorer, self.optimizer, self.step)

    def run(self, say: Callable[[dict[str, Any]], None], *, every: int = 25, save_every: int = 250) -> None:
        """Train to the plan's end; ``say`` gets a line of figures every ``every`` steps. ^C loses nothing."""
        began, begun, totals = time.monotonic(), self.step, []
        try:
            while self.step < self.plan.steps:
                totals.append(self._one_step())
                if self.step % every == 0 or self.step == self.plan.steps:
                    loss, error, divergence = np.mean(totals, axis=0)
                    line = {
                        "step": self.step,
                        "loss": round(float(loss), 4),
                        "error": round(float(error), 4),
                        "divergence": round(float(divergence), 4),
                        "s_per_step": round((time.monotonic() - began) / (self.step - begun), 3),
                    }
                    say(line)
                    checkpoint.log(self.folder, line)
                    totals = []
                if self.step % save_every == 0:
                    self.save()
        finally:
            self.save()

    def _one_step(self) -> tuple[float, float, float]:
        plan = self.plan
        rows = self._rows()
        factor = plan.rate(self.step)
        rates = (plan.matrix_rate, plan.other_rate)
        for optimizer, rate in zip(self.optimizer.optimizers, rates, strict=True):
            optimizer.learning_rate = rate * factor
        (loss, *parts), gradients = self.value_and_grad(rows)
        gradients, _ = optimizers.clip_grad_norm(gradients, plan.clip)
        self.optimizer.update(self.restorer, gradients)
        mx.eval(loss, parts, self.restorer.trainable_parameters(), self.optimizer.state)
        self.step += 1
        return float(loss), *(float(part) for part in parts)

    def _rows(self) -> Read:
        """Return this step's rows. They depend on the plan and the step alone, however often the run stopped."""
        plan = self.plan
        batches = max(1, plan.pool // plan.rows)
        number, place = divmod(self.step, batches * plan.uses)
        if self.pool[0] != number:
            rng = np.random.default_rng((plan.seed, number, 1))
            self.pool = (number, [self.read(self.source(rng, plan.rows)) for _ in range(batches)])
        order = np.random.default_rng((plan.seed, number, 2)).permutation(batches * plan.uses)
        return self.pool[1][order[place] % batches]

    def read(self, rows: np.ndarray) -> Read:
        """Let the target read rows ``[rows, length]`` as they are."""
        tokens, caches = mx.array(rows.astype(np.int32)), lm_cache.make_prompt_cache(self.target)
        logits = self.target(tokens, cache=caches)
        made = Read(
            tokens, normed(self.embed(tokens)), [caches[i].keys_and_values() for i in self.layers], logits
        )
        mx.eval(made.embedded, made.held, made.logits)
        return made

    def loss(self, rows: Read) -> tuple[mx.array, mx.array, mx.array]:
        """Return the loss of a step, and its parts: mean relative error, and divergence in nats or 0."""
        given = self.given(rows)
        each = errors(given, rows.held)
        error = sum(each) / len(each)
        if self.step < self.plan.alone:
            return error, mx.stop_gradient(error), mx.zeros(())
        divergence = self.divergence(rows, given)
        loss = error + self.plan.divergence * divergence
        return loss, mx.stop_gradient(error), mx.stop_gradient(divergence)

    def given(self, rows: Read) -> list[Pair]:
        """Return what the restorer gives for all positions of all its layers, as they would be held."""
        states, given = self.restorer.states(rows.embedded), []
        for i, (block, held) in enumerate(zip(self.blocks, rows.held, strict=True)):
            raw = project(block, self.restorer.inputs(i, rows.embedded, states))
            given.append(as_cached(block.self_attn, raw, tuple(map(Like.of, held)), 0))
        return given

    def divergence(self, rows: Read, given: Sequence[Pair]) -> mx.array:
        """Return KL(as it is || restored) in nats, the mean over positions behind which something was evicted."""
        plan, caches = self.plan, lm_cache.make_prompt_cache(self.target)
        for i, pair in zip(self.layers, given, strict=True):
            caches[i] = WholeRows(pair, plan.sink, plan.window)
        first = 2 * plan.window
        found = _log_probs(self.target(rows.tokens, cache=caches)[:, first:])
        wanted = _log_probs(rows.logits[:, first:])
        return (mx.exp(wanted) * (wanted - found)).sum(axis=-1).mean()


def errors(given: Sequence[Pair], held: Sequence[Pair]) -> list[mx.array]:
    """Return sum(error^2) / sum(x^2) of each layer's keys, then of its values, layer by layer."""
    return [
        mx.square(ours - theirs).sum() / mx.square(theirs).sum()
        for pairs in zip(given, held, strict=True)
        for ours, theirs in zip(*pairs, strict=True)
    ]


def _log_probs(logits: mx.array) -> mx.array:
    logits = logits.astype(mx.float32)
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)
