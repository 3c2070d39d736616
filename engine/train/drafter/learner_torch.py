"""Trains a drafter in torch, for targets that transformers loads too.

It computes the same as ``engine.train.drafter.learner_mlx`` (a test compares loss and gradients), is faster on a
CPU, and also runs on CUDA. The target runs in float32, as in decoding with this engine. The drafter is trained in
float32, and its matrices are multiplied in bfloat16 if that is faster.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engine.dflash.drafter.in_torch import TorchLayers
from engine.dflash.drafter.model import DFlashDrafter
from engine.mx import mx, tree
from engine.train.drafter.recipe import TOP, DrafterPlan
from engine.train.run import MATRIX
from engine.train.with_torch import (
    TrainedTorchWeights,
    functional,
    muon_and_adamw,
    product_dtype,
    torch,
    transformers,
)

STRIDE = 16  # besides the likely tokens, a shortlist has every 16th token of the vocabulary


@dataclass(frozen=True)
class Batch:
    """The target's outputs for some rows of text: ``engine.train.drafter.blocks.Batch`` in torch."""

    tokens: torch.Tensor
    taps: torch.Tensor
    top_ids: torch.Tensor
    top_probs: torch.Tensor


def writer(
    folder: Path, tokens: int, *, device: str = "cpu", seed: int = 0
) -> Callable[[Sequence[Sequence[int]]], list[list[int]]]:
    """Return a function with which a target answers prompts, with at most ``tokens`` tokens each.

    It computes in the type that is faster on the device, samples a quarter of the answers, and decodes others greedily.
    """
    model = _load(folder, device, product_dtype(device))
    ends = model.generation_config.eos_token_id
    ends = set(ends if isinstance(ends, list) else [ends])
    pad = min(ends)
    torch.manual_seed(seed)

    def write(prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        answers: dict[int, list[int]] = {}
        sampled = range(0, len(prompts), 4)
        for chosen in (sampled, [i for i in range(len(prompts)) if i not in sampled]):
            if not chosen:
                continue
            longest = max(len(prompts[i]) for i in chosen)
            ids = torch.tensor([[pad] * (longest - len(prompts[i])) + list(prompts[i]) for i in chosen])
            mask = torch.tensor([[0] * (longest - len(prompts[i])) + [1] * len(prompts[i]) for i in chosen])
            written = model.generate(
                ids.to(device), attention_mask=mask.to(device),
                max_new_tokens=tokens, do_sample=chosen is sampled, pad_token_id=pad,
            )  # fmt: skip
            for i, row in zip(chosen, written[:, longest:].tolist(), strict=True):
                end = next((at + 1 for at, token in enumerate(row) if token in ends), len(row))
                answers[i] = row[:end]
        return [answers[i] for i in range(len(prompts))]

    return write


def _load(folder: Path, device: str, dtype: torch.dtype, **options: str) -> Any:
    load = transformers.AutoModelForCausalLM.from_pretrained
    return load(folder, dtype=dtype, local_files_only=True, **options).to(device).eval()


class TorchLearner(TrainedTorchWeights[DrafterPlan]):
    """Trains a drafter, which gets the weights at the end, for a target that transformers reads.

    ``embed_scale`` is the factor of ``engine.dflash.target.embeddings.DraftEmbeddings``, ``dtype`` that of the
    drafter's matrix products; None for what is quicker on the device.
    """

    def __init__(
        self,
        draft: DFlashDrafter,
        folder: Path,
        plan: DrafterPlan,
        *,
        embed_scale: float = 1.0,
        device: str = "cpu",
        dtype: torch.dtype | None = None,
    ) -> None:
        config = draft.config
        self.draft, self.config, self.embed_scale = draft, config, embed_scale
        self.dtype = dtype or product_dtype(device)
        model = _load(folder, device, torch.float32, attn_implementation="sdpa")
        self.model = model.requires_grad_(requires_grad=False)
        self.table = self.model.get_input_embeddings().weight
        self.head = self.model.get_output_embeddings().weight
        weights = {
            name: torch.nn.Parameter(torch.from_numpy(np.array(value.astype(mx.float32))).to(device))
            for name, value in tree.tree_flatten(draft.trainable_parameters())
        }
        matrices = [value for value in weights.values() if value.ndim == MATRIX]
        others = [value for value in weights.values() if value.ndim != MATRIX]
        optimizers = muon_and_adamw(matrices, others, plan, decay=0.01, scaling="original")
        super().__init__(weights, optimizers, plan, device)
        self.layers = TorchLayers(config, dict(self.weights), device, self.dtype)

    @torch.no_grad()
    def read(self, rows: np.ndarray) -> Batch:
        """Return the target's taps and most probable next tokens for ``rows`` ``[rows, length]``."""
        tokens = torch.from_numpy(rows.astype(np.int64)).to(self.device)
        taps: dict[int, torch.Tensor] = {}

        def keep(layer: int, _module: object, _inputs: object, output: Any) -> None:
            taps[layer] = output[0] if isinstance(output, tuple) else output

        layers = self.model.get_decoder().layers
        hooks = [layers[i].register_forward_hook(partial(keep, i)) for i in self.config.target_layer_ids]
        try:
            with torch.autocast(self.device, torch.bfloat16, enabled=self.plan.shortlist):
                logits = self.model(input_ids=tokens, use_cache=False).logits.float()
        finally:
            for hook in hooks:
                hook.remove()
        scores, ids = logits.topk(TOP, dim=-1)
        chosen = torch.cat([taps[i] for i in self.config.target_layer_ids], dim=-1)
        return Batch(tokens, chosen.to(self.dtype), ids, scores.softmax(-1))

    def learn(self, batch: Batch, step: int) -> dict[str, float]:
        """Take one step; return the loss and tau before the step."""
        anchors = self.plan.anchor_positions(step, batch.tokens.shape[1]).astype(np.int64)
        loss, tau = self.loss(batch, torch.from_numpy(anchors).to(self.device), step)
        return {"loss": self.step(step, loss), "tau": float(tau)}

    def finish(self) -> None:
        """Copy the learned weights into the drafter."""
        learnt = [(name, mx.array(value.detach().cpu().numpy())) for name, value in self.weights.items()]
        self.draft.update(tree.tree_unflatten(learnt))

    def loss(self, batch: Batch, anchors: torch.Tensor, step: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss and tau of the training blocks (committed tokens per verify step, greedily).

        A shortlist has the batch's ``top_ids`` and every ``STRIDE``-th token, from another offset at each ``step``.
        """
        plan, slots = self.plan, self.plan.block - 1
        states = self._hidden_states(batch, anchors)
        head, top_ids = self.head, batch.top_ids
        if plan.shortlist:
            others = torch.arange(step % STRIDE, len(head), STRIDE, device=self.device)
            words = torch.cat([top_ids.flatten(), others]).unique()
            head, top_ids = head[words], torch.searchsorted(words, top_ids)
        logits = self.layers.linear(states, head) * self.config.output_multiplier
        if cap := self.config.final_logit_softcapping:
            logits = torch.tanh(logits / cap) * cap
        logits = logits.float()
        at = anchors[..., None] + torch.arange(slots, device=self.device)
        row = torch.arange(len(at), device=self.device)[:, None, None]
        ids, probs = top_ids[row, at], batch.top_probs[row, at]
        likely = logits.gather(-1, ids)
        losses = logits.logsumexp(-1) - 0.5 * likely[..., 0] - 0.5 * (likely * probs).sum(-1)

        on_path = batch.top_ids[row, at, 0] == batch.tokens[row, at + 1]
        on_path = functional.pad(on_path[..., :-1].float().cumprod(-1), (1, 0), value=1.0)
        fading = torch.exp(-torch.arange(slots, device=self.device) / plan.decay)
        weights = fading * (plan.off_path + (1 - plan.off_path) * on_path)
        loss = (losses * weights).sum() / weights.sum()

        hits = (logits.detach().argmax(-1) == ids[..., 0]).float()
        return loss, 1 + (hits.cumprod(-1) * on_path).sum(-1).mean()

    def _hidden_states(self, batch: Batch, anchors: torch.Tensor) -> torch.Tensor:
        """Return the last states at the masks, ``[rows, anchors, block - 1, hidden]``.

        The counterpart of ``engine.train.drafter.blocks.hidden_states``.
        """
        config, block = self.config, self.plan.block
        rows, length = batch.tokens.shape
        count = anchors.shape[1]
        ids = torch.full((rows, count, block), config.mask_token_id, device=self.device)
        ids[..., 0] = batch.tokens.gather(1, anchors)
        states = functional.embedding(ids, self.table) * self.embed_scale
        states = states.reshape(rows, count * block, -1)
        layers, context = self.layers, self.layers.fused_taps(batch.taps)
        query_at = (anchors[..., None] + torch.arange(block, device=self.device)).reshape(rows, -1)
        key_at = torch.arange(length, device=self.device)
        before = key_at < anchors.repeat_interleave(block, dim=1)[..., None]
        for i in range(config.num_hidden_layers):
            window = config.window(i)
            visible = before if window is None else before & (query_at[..., None] - key_at < window)
            keys_and_values = layers.context(i, context, key_at)
            states = states + layers.attend(i, states, keys_and_values, visible, query_at, block)
            states = states + layers.mlp(i, states)
        return layers.norm(states.reshape(rows, count, block, -1)[:, :, 1:], "norm")
