"""Trains a drafter in MLX, for any target that mlx-lm loads."""

import numpy as np

from engine.dflash.drafter.model import DFlashDrafter
from engine.dflash.target.embeddings import DraftEmbeddings, TargetEmbeddings
from engine.dflash.target.rotary import Rotations
from engine.dflash.target.taps import Tapped
from engine.mx import mx, nn
from engine.train.drafter.blocks import Batch, hidden_states
from engine.train.drafter.recipe import TOP, DrafterPlan
from engine.train.optimizer import TrainedWeights


def read(tapped: Tapped, rows: np.ndarray) -> Batch:
    """Return the target's taps and most probable next tokens for ``rows`` ``[rows, length]``."""
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


class MlxLearner(TrainedWeights[DrafterPlan]):
    """Trains a drafter in place. The target, a model of mlx-lm, does not change."""

    def __init__(self, draft: DFlashDrafter, target: nn.Module, plan: DrafterPlan) -> None:
        super().__init__(draft, self.loss, plan)
        self.draft = draft
        self.tapped = Tapped(target, draft.config.target_layer_ids)
        embeddings = TargetEmbeddings.of(target)
        embeddings.check(draft.config)
        self.embeddings = DraftEmbeddings(embeddings, draft.config)
        self.rotations = Rotations.of(draft.config)

    def read(self, rows: np.ndarray) -> Batch:
        """Let the target read ``rows``."""
        return read(self.tapped, rows)

    def learn(self, batch: Batch, step: int) -> dict[str, float]:
        """Take one step; return the loss and tau before the step."""
        anchors = mx.array(self.plan.anchor_positions(step, batch.tokens.shape[1]))
        loss, tau = self.step(step, batch, anchors)
        return {"loss": loss, "tau": tau}

    def loss(self, batch: Batch, anchors: mx.array) -> tuple[mx.array, mx.array]:
        """Return the loss and tau of the training blocks (committed tokens per verify step, greedily)."""
        plan = self.plan
        states = hidden_states(self.draft, self.embeddings.embed, batch, anchors, plan.block, self.rotations)
        rows, count, slots, width = states.shape
        raw = self.embeddings.logits(states.reshape(rows, count * slots, width))
        logits = self.embeddings.cap(raw).astype(mx.float32).reshape(rows, count, slots, -1)
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
