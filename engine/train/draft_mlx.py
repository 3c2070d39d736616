"""Train a drafter in MLX, for any target that mlx-lm loads."""

from pathlib import Path

import numpy as np

from engine.dflash.drafter import Drafter
from engine.dflash.layers import Rotations
from engine.dflash.taps import Tapped
from engine.dflash.target import DraftEnds, TargetEnds
from engine.mx import mx, nn, optimizers, tree
from engine.train.blocks import Batch, hidden_states
from engine.train.draft import TOP, Plan
from engine.train.schedule import MATRIX


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


class MlxLearner:
    """A :class:`engine.train.draft.Learner`.

    Args:
        draft: the drafter; it learns in place.
        target: an mlx-lm model; it stays as it is.
        plan: rates and weights.
    """

    def __init__(self, draft: Drafter, target: nn.Module, plan: Plan) -> None:
        self.draft, self.plan = draft, plan
        self.tapped = Tapped(target, draft.config.target_layer_ids)
        ends = TargetEnds.of(target)
        ends.check(draft.config)
        self.ends = DraftEnds(ends, draft.config)
        self.rotations = Rotations(draft.config)
        self.optimizer = optimizers.MultiOptimizer(
            [
                optimizers.Muon(plan.matrix_rate, weight_decay=0.01),
                optimizers.AdamW(plan.other_rate, betas=[0.9, 0.97], weight_decay=0.0),
            ],
            [lambda _, weight: weight.ndim == MATRIX],
        )
        self.value_and_grad = nn.value_and_grad(draft, self.loss)

    def read(self, rows: np.ndarray) -> Batch:
        """Let the target read ``rows``."""
        return read(self.tapped, rows)

    def learn(self, batch: Batch, anchors: np.ndarray, factor: float) -> tuple[float, float]:
        """Take one step; return the loss and the tau before it."""
        rates = (self.plan.matrix_rate, self.plan.other_rate)
        for optimizer, rate in zip(self.optimizer.optimizers, rates, strict=True):
            optimizer.learning_rate = rate * factor
        (loss, tau), gradients = self.value_and_grad(batch, mx.array(anchors))
        gradients, _ = optimizers.clip_grad_norm(gradients, self.plan.clip)
        self.optimizer.update(self.draft, gradients)
        mx.eval(loss, tau, self.draft.trainable_parameters(), self.optimizer.state)
        return float(loss), float(tau)

    def save(self, path: Path) -> None:
        """Write weights and moments as safetensors."""
        model = {f"model.{k}": v for k, v in tree.tree_flatten(self.draft.trainable_parameters())}
        moments = {f"optimizer.{k}": v for k, v in tree.tree_flatten(self.optimizer.state)}
        named = path.with_suffix(".safetensors")  # mlx looks at the ending
        mx.save_safetensors(str(named), model | moments)
        named.replace(path)

    def load(self, path: Path) -> None:
        """Go on from what :meth:`save` wrote."""
        saved = mx.load(str(path), format="safetensors")
        model = {k.removeprefix("model."): v for k, v in saved.items() if k.startswith("model.")}
        self.draft.update(tree.tree_unflatten(list(model.items())))
        moments = {k.removeprefix("optimizer."): v for k, v in saved.items() if k.startswith("optimizer.")}
        self.optimizer.init(self.draft.trainable_parameters())
        self.optimizer.state = tree.tree_unflatten(list(moments.items()))

    def finish(self) -> None:
        """Nothing is left to do: the drafter's own weights are what learnt."""

    def loss(self, batch: Batch, anchors: mx.array) -> tuple[mx.array, mx.array]:
        """Return the loss and the tau of the training blocks (committed tokens a verify step, greedily)."""
        plan = self.plan
        states = hidden_states(self.draft, self.ends.embed, batch, anchors, plan.block, self.rotations)
        rows, count, slots, width = states.shape
        logits = self.ends.cap(self.ends.logits(states.reshape(rows, count * slots, width))).astype(
            mx.float32
        )
        logits = logits.reshape(rows, count, slots, -1)
        at = anchors[..., None] + mx.arange(slots)  # the target's successor there is the slot's answer
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
