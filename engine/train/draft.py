"""Train a DFlash drafter for any target that mlx-lm loads.

The target reads rows of text, written by people and by itself, and says what it would have written after
each position. The drafter learns to say the same, several positions ahead at once. No gradient goes through
the target; its embedding and head serve the drafter as they are.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.dflash.drafter import Drafter
from engine.dflash.layers import Rotations
from engine.dflash.taps import Tapped
from engine.dflash.target import DraftEnds, TargetEnds
from engine.errors import BadInput
from engine.mx import mx, nn, optimizers, tree
from engine.train.blocks import Batch, hidden_states
from engine.train.schedule import Schedule

Source = Callable[[np.random.Generator, int], np.ndarray]

MATRIX = 2  # dimensions of a matrix: Muon's, where the rest is AdamW's
TOP = 24  # probabilities of the target that are kept a position


@dataclass(frozen=True, kw_only=True)
class Plan(Schedule):
    """How long and how fast. One step is ``rows`` rows with ``anchors`` blocks each.

    The target reads ``pool`` rows at a time, and each serves ``uses`` steps with other anchors.
    """

    rows: int = 8
    anchors: int = 64
    block: int = 8
    pool: int = 32
    uses: int = 4
    matrix_rate: float = 0.012
    other_rate: float = 1.5e-3
    warm_up: int = 50
    clip: float = 1.0
    decay: float = 4.0  # slot j of a block weighs exp(-j / decay)
    off_path: float = 0.1  # the weight of slots behind one where the text is not what the target would write
    seed: int = 0


def read(tapped, rows: np.ndarray) -> Batch:
    """Let the target read ``rows`` ``[rows, length]``: taps, and its most probable successors."""
    tokens = mx.array(rows.astype(np.int32))
    logits, taps = tapped.forward(tokens, None)
    logits = logits.astype(mx.float32)
    ids = mx.argpartition(-logits, TOP, axis=-1)[..., :TOP]
    scores = mx.take_along_axis(logits, ids, axis=-1)
    order = mx.argsort(-scores, axis=-1)
    ids = mx.take_along_axis(ids, order, axis=-1).astype(mx.int32)
    probs = mx.softmax(mx.take_along_axis(scores, order, axis=-1), axis=-1)
    batch = Batch(tokens, taps.astype(mx.float16), ids, probs)
    mx.eval(batch.taps, batch.top_ids, batch.top_probs)
    return batch


class Trainer:
    """One run in a folder: ``checkpoint.safetensors`` and ``state.json`` to resume from, ``log.jsonl``.

    Args:
        draft: the drafter. target: an mlx-lm model; it stays as it is.
        source: from a random generator and a number of rows to token ids ``[rows, length]``.
        folder: where checkpoint and log go. Raises BadInput where another plan was begun there.
    """

    def __init__(self, draft: Drafter, target: nn.Module, source: Source, folder: Path, plan: Plan) -> None:
        self.draft, self.source = draft, source
        self.tapped = Tapped(target, draft.config.target_layer_ids)
        self.ends = TargetEnds.of(target)
        self.ends.check(draft.config)
        self.folder, self.plan = folder, plan
        self.rotations = Rotations(draft.config)
        self.step = 0
        self.pool: tuple[int, list[Batch]] = (-1, [])
        self.optimizer = optimizers.MultiOptimizer(
            [
                optimizers.Muon(plan.matrix_rate, weight_decay=0.01),
                optimizers.AdamW(plan.other_rate, betas=[0.9, 0.97], weight_decay=0.0),
            ],
            [lambda _, weight: weight.ndim == MATRIX],
        )
        self.value_and_grad = nn.value_and_grad(draft, self._loss)
        folder.mkdir(parents=True, exist_ok=True)
        self._resume()

    def _resume(self) -> None:
        path = self.folder / "state.json"
        if not path.exists():
            return
        state = json.loads(path.read_text(encoding="utf-8"))
        if state["plan"] != asdict(self.plan):
            raise BadInput(f"{path} was begun with another plan", "choose another folder, or remove it")
        saved = mx.load(str(self.folder / "checkpoint.safetensors"))
        model = {k.removeprefix("model."): v for k, v in saved.items() if k.startswith("model.")}
        self.draft.update(tree.tree_unflatten(list(model.items())))
        moments = {k.removeprefix("optimizer."): v for k, v in saved.items() if k.startswith("optimizer.")}
        self.optimizer.init(self.draft.trainable_parameters())
        self.optimizer.state = tree.tree_unflatten(list(moments.items()))
        self.step = state["step"]

    def save(self) -> None:
        """Write the checkpoint; an interrupted write leaves the one before it."""
        model = {f"model.{k}": v for k, v in tree.tree_flatten(self.draft.trainable_parameters())}
        moments = {f"optimizer.{k}": v for k, v in tree.tree_flatten(self.optimizer.state)}
        half = self.folder / "checkpoint.part.safetensors"
        mx.save_safetensors(str(half), model | moments)
        half.replace(self.folder / "checkpoint.safetensors")
        text = json.dumps({"plan": asdict(self.plan), "step": self.step})
        (self.folder / "state.json").write_text(text, encoding="utf-8")

    def run(self, say: Callable[[dict[str, Any]], None], *, every: int = 25, save_every: int = 250) -> None:
        """Train to the plan's end; ``say`` gets a line of figures every ``every`` steps. ^C loses nothing."""
        began, begun, totals = time.monotonic(), self.step, []
        try:
            while self.step < self.plan.steps:
                totals.append(self._one_step())
                if self.step % every == 0 or self.step == self.plan.steps:
                    loss, tau = np.mean(totals, axis=0)
                    seconds = (time.monotonic() - began) / (self.step - begun)
                    line = {
                        "step": self.step,
                        "loss": round(float(loss), 4),
                        "tau": round(float(tau), 3),
                        "s_per_step": round(seconds, 3),
                    }
                    say(line)
                    with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
                    totals = []
                if self.step % save_every == 0:
                    self.save()
        finally:
            self.save()

    def _one_step(self) -> tuple[float, float]:
        plan = self.plan
        batch = self._batch()
        rng = np.random.default_rng((plan.seed, self.step))
        last = batch.tokens.shape[1] - plan.block
        anchors = np.stack(
            [rng.choice(np.arange(1, last), plan.anchors, replace=False) for _ in range(plan.rows)]
        )
        factor = plan.rate(self.step)
        rates = (plan.matrix_rate, plan.other_rate)
        for optimizer, rate in zip(self.optimizer.optimizers, rates, strict=True):
            optimizer.learning_rate = rate * factor
        (loss, tau), gradients = self.value_and_grad(
            batch, mx.array(np.sort(anchors, axis=1).astype(np.int32))
        )
        gradients, _ = optimizers.clip_grad_norm(gradients, plan.clip)
        self.optimizer.update(self.draft, gradients)
        mx.eval(loss, tau, self.draft.trainable_parameters(), self.optimizer.state)
        self.step += 1
        return float(loss), float(tau)

    def _batch(self) -> Batch:
        """Return this step's rows. They depend on the plan and the step alone, however often the run stopped."""
        plan = self.plan
        batches = plan.pool // plan.rows
        number, place = divmod(self.step, batches * plan.uses)
        if self.pool[0] != number:
            rng = np.random.default_rng((plan.seed, number, 1))
            self.pool = (
                number,
                [read(self.tapped, self.source(rng, plan.rows)) for _ in range(batches)],
            )
        order = np.random.default_rng((plan.seed, number, 2)).permutation(batches * plan.uses)
        return self.pool[1][order[place] % batches]

    def _embed(self, ids: mx.array) -> mx.array:
        return DraftEnds(self.ends, self.draft.config).embed(ids)

    def _head(self, states: mx.array) -> mx.array:
        ends = DraftEnds(self.ends, self.draft.config)
        return ends.cap(ends.logits(states))

    def _loss(self, batch: Batch, anchors: mx.array) -> tuple[mx.array, mx.array]:
        """Return the loss and the tau of the training blocks (committed tokens a verify step, greedily)."""
        plan = self.plan
        states = hidden_states(self.draft, self._embed, batch, anchors, plan.block, self.rotations)
        rows, count, slots, width = states.shape
        logits = self._head(states.reshape(rows, count * slots, width)).astype(mx.float32)
        logits = logits.reshape(rows, count, slots, -1)
        at = anchors[..., None] + mx.arange(
            slots
        )  # the target's successor of this position is the slot's answer
        row = mx.arange(rows)[:, None, None]
        ids, probs = batch.top_ids[row, at], batch.top_probs[row, at]
        likely = mx.take_along_axis(logits, ids, axis=-1)
        total = mx.logsumexp(logits, axis=-1)
        losses = total - 0.5 * likely[..., 0] - 0.5 * (likely * probs).sum(axis=-1)

        best = ids[..., 0]
        text = batch.tokens[row, at + 1]
        on_path = mx.cumprod((best == text)[..., :-1].astype(mx.float32), axis=-1)
        on_path = mx.concatenate([mx.ones((rows, count, 1)), on_path], axis=-1)
        weights = mx.exp(-mx.arange(slots) / plan.decay) * (plan.off_path + (1 - plan.off_path) * on_path)
        loss = (losses * weights).sum() / weights.sum()

        hits = (mx.argmax(logits, axis=-1) == best).astype(mx.float32)
        accepted = (mx.cumprod(hits, axis=-1) * on_path).sum(axis=-1)
        return loss, mx.stop_gradient(1 + accepted.mean())
