"""Trains an EAGLE-3 head in MLX, for any target that mlx-lm loads."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.checkpoints.files import text_config
from engine.dflash.heads.eagle3 import Eagle3
from engine.dflash.heads.eagle3_config import Eagle3Config
from engine.dflash.target.embeddings import TargetEmbeddings
from engine.dflash.target.rotary import Rotations
from engine.dflash.target.taps import Tapped
from engine.errors import BadInput
from engine.mx import mx, nn
from engine.train.head.recipe import HeadPlan
from engine.train.head.unrolled import outputs
from engine.train.optimizer import TrainedWeights
from engine.train.run import MATRIX

TOP = 24  # the target's largest probabilities that are kept per position
NEEDED = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")


@dataclass(frozen=True)
class Batch:
    """The target's outputs for some rows of text."""

    tokens: mx.array  # `[rows, length]` int32
    taps: mx.array  # `[rows, length, chosen * hidden]`
    best: mx.array  # `[rows, length]` int32: the target's choice of the next token
    # `[rows, length, k]`: the likeliest tokens of the draft vocabulary, by their number in it, and probabilities that
    # add up to one
    top: mx.array
    probs: mx.array


def head_config(
    target: dict[str, Any], vocabulary: int, made_for: dict[str, str] | None = None
) -> Eagle3Config:
    """Return the shape of a head for a target with the configuration ``target``; BadInput without attention layers."""
    config = text_config(target)
    if missing := ", ".join(name for name in NEEDED if name not in config):
        message = f"an EAGLE-3 head cannot be made for a {config['model_type']}: its configuration"
        raise BadInput(f"{message} has no {missing}", "choose a target with attention layers")
    layers, heads, size = config["num_hidden_layers"], config["num_attention_heads"], config["hidden_size"]
    rope = config.get("rope_parameters") or {}
    ids = Eagle3Config.default_layer_ids(layers)
    return Eagle3Config(
        hidden_size=size,
        target_hidden_size=size,
        num_attention_heads=heads,
        num_key_value_heads=config.get("num_key_value_heads", heads),
        head_dim=config.get("head_dim") or size // heads,
        intermediate_size=2 * size,
        vocab_size=config["vocab_size"],
        draft_vocab_size=min(vocabulary, config["vocab_size"]),
        rms_norm_eps=config.get("rms_norm_eps", 1e-6),
        rope_theta=float(config.get("rope_theta") or rope.get("rope_theta") or 10_000.0),
        max_position_embeddings=config.get("max_position_embeddings", 4096),
        layer_ids=tuple(sorted({max(0, i) for i in ids}))
        if min(ids) < 0 or len(set(ids)) < len(ids)
        else ids,
        made_for=made_for,
    )


def new_head(config: Eagle3Config, target: nn.Module, ids: Sequence[int], seed: int = 0) -> Eagle3:
    """Return a head to train: random, but with the target's output head and last norm."""
    mx.random.seed(seed)
    head = Eagle3(config)
    head.use_ids(list(ids) if config.draft_vocab_size < config.vocab_size else None)
    parts = TargetEmbeddings.of(target)
    rows = mx.array(list(ids))
    # The head's rows of the draft vocabulary: what it gives for the unit vectors.
    unit = mx.eye(config.target_hidden_size)
    head.lm_head.weight = parts.head(unit).astype(mx.float32)[:, rows].T
    norm = getattr(parts.norm, "weight", None)
    if norm is not None and norm.shape == head.norm.weight.shape:
        head.norm.weight = norm.astype(mx.float32)
    head.set_dtype(mx.float32)
    mx.eval(head.parameters())
    return head


def _by_muon(name: str, weight: mx.array) -> bool:
    """Return whether Muon moves a weight: the matrices within the layer."""
    return weight.ndim == MATRIX and "lm_head" not in name


class HeadLearner(TrainedWeights[HeadPlan]):
    """Trains a head in place. The target, a model of mlx-lm, does not change. ``held_out`` are rows to measure with."""

    def __init__(
        self, head: Eagle3, target: nn.Module, plan: HeadPlan, held_out: np.ndarray | None = None
    ) -> None:
        super().__init__(head, self.loss, plan, _by_muon)
        self.head, self.held_out = head, held_out
        self.tapped = Tapped(target, head.layer_ids(target))
        self.parts = TargetEmbeddings.of(target)
        self.ids = None if head.ids is None else mx.array(head.ids, mx.int32)
        self.rotations = Rotations(head.layers[0].self_attn.rope, head.config.head_dim)
        self.reading = self.learning = 0.0  # seconds

    def read(self, rows: np.ndarray) -> Batch:
        """Let the target read ``rows`` ``[rows, length]``."""
        began = time.perf_counter()
        tokens = mx.array(rows.astype(np.int32))
        logits, taps = self.tapped.forward(tokens, None)
        logits = logits.astype(mx.float32)
        best = mx.argmax(logits, axis=-1).astype(mx.int32)
        scores = logits if self.ids is None else logits[..., self.ids]
        top = mx.argpartition(-scores, TOP, axis=-1)[..., :TOP]
        probs = mx.softmax(mx.take_along_axis(scores, top, axis=-1), axis=-1)
        batch = Batch(tokens, taps.astype(mx.float32), best, top.astype(mx.int32), probs)
        mx.eval(batch.taps, batch.best, batch.top, batch.probs)
        self.reading += time.perf_counter() - began
        return batch

    def learn(self, batch: Batch, step: int) -> dict[str, float]:
        """Take one step; return the loss, tokens a round before it, and the share of time that reading took."""
        began = time.perf_counter()
        loss, tau = self.step(step, batch)
        self.learning += time.perf_counter() - began
        share = self.reading / (self.reading + self.learning)
        return {
            "loss": loss,
            "tau": tau,
            "tokens": float((step + 1) * batch.tokens.size),
            "read_share": share,
        }

    def loss(self, batch: Batch) -> tuple[mx.array, mx.array]:
        """Return the loss, and the tokens a round of chains that are as long as training unrolls."""
        plan, total, weight = self.plan, mx.array(0.0), mx.array(0.0)
        length = batch.tokens.shape[1]
        on_path = accepted = mx.array(0.0)
        chain = outputs(self.head, self.parts.embed, batch.tokens, batch.taps, plan.unroll, self.rotations)
        for k, states in enumerate(chain):
            logits = self.head.lm_head(self.head.norm(states)).astype(mx.float32)
            at = slice(1 + k, length)
            likely = mx.take_along_axis(logits, batch.top[:, at], axis=-1)
            losses = mx.logsumexp(logits, axis=-1) - (likely * batch.probs[:, at]).sum(axis=-1)
            drafts = mx.argmax(logits, axis=-1)
            drafts = drafts.astype(mx.int32) if self.ids is None else self.ids[drafts]
            possible = self._possible(batch.best[:, at])
            counted = possible * plan.decay**k
            total, weight = total + (losses * counted).sum(), weight + counted.sum()
            hits = (drafts == batch.best[:, at]).astype(mx.float32)
            rows = length - plan.unroll
            # A chain goes on where the text has what the target would say.
            if k == 0:
                on_path = hits[:, :rows]
            else:
                same = (batch.best[:, k : k + rows] == batch.tokens[:, 1 + k : 1 + k + rows]).astype(
                    mx.float32
                )
                on_path = on_path * same * hits[:, :rows]
            accepted = accepted + on_path.mean()
        return total / weight, mx.stop_gradient(1 + accepted)

    def measured(self) -> dict[str, float]:
        """Return tokens a round on held-out rows."""
        if self.held_out is None:
            return {}
        reading = self.reading
        taus = [
            self.loss(self.read(self.held_out[i : i + 4]))[1].item() for i in range(0, len(self.held_out), 4)
        ]
        self.reading = reading
        return {"held_out_tau": float(np.mean(taus))}

    def _possible(self, best: mx.array) -> mx.array:
        """Return 1 where the target's choice is in the draft vocabulary, 0 elsewhere."""
        if self.ids is None:
            return mx.ones(best.shape)
        flags = mx.zeros((self.head.config.vocab_size,))
        flags[self.ids] = 1.0
        return flags[best]
