"""Train a drafter in torch, for targets that transformers loads too.

It computes what :mod:`engine.train.drafter.learner_mlx` computes (a test compares loss and gradients), faster on a CPU, and
runs on CUDA. The target reads in float32, as it will when decoding here; the drafter learns in float32, and its
matrices are multiplied in bfloat16 where that is quicker.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.dflash.drafter.model import Drafter
from engine.dflash.target.rotary import Rotations
from engine.mx import mx, tree
from engine.train.drafter.recipe import TOP, Plan
from engine.train.schedule import MATRIX
from engine.train.with_torch import (
    functional,
    muon_and_adamw,
    product_dtype,
    take_step,
    torch,
    transformers,
)


@dataclass(frozen=True)
class Batch:
    """What the target says about some rows of text; :class:`engine.train.drafter.blocks.Batch` in torch."""

    tokens: torch.Tensor
    taps: torch.Tensor
    top_ids: torch.Tensor
    top_probs: torch.Tensor


class TorchLearner:
    """A :class:`engine.train.run.Learner`.

    Args:
        draft: the drafter; what was learnt is put into it at the end.
        folder: of the target, as transformers reads it.
        plan: rates and weights.
        embed_scale: the factor of the target's embeddings, as in :class:`engine.dflash.target.ends.DraftEnds`.
        device: ``cpu`` or ``cuda``.
        dtype: of the drafter's matrix products; None for what is quicker on the device.
    """

    suffix = ".pt"

    def __init__(
        self,
        draft: Drafter,
        folder: Path,
        plan: Plan,
        *,
        embed_scale: float = 1.0,
        device: str = "cpu",
        dtype: torch.dtype | None = None,
    ) -> None:
        config = draft.config
        self.draft, self.config, self.plan = draft, config, plan
        self.device, self.embed_scale = device, embed_scale
        self.dtype = dtype or product_dtype(device)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
        )
        self.model = model.to(device).eval().requires_grad_(requires_grad=False)
        self.table = self.model.get_input_embeddings().weight
        self.head = self.model.get_output_embeddings().weight
        self.weights = {
            name: torch.nn.Parameter(torch.from_numpy(np.array(value.astype(mx.float32))).to(device))
            for name, value in tree.tree_flatten(draft.trainable_parameters())
        }
        matrices = [value for value in self.weights.values() if value.ndim == MATRIX]
        others = [value for value in self.weights.values() if value.ndim != MATRIX]
        self.optimizers = muon_and_adamw(matrices, others, plan, decay=0.01, scaling="original")
        cos, sin = Rotations.of(config).at(0, config.max_position_embeddings)
        self.turns = [torch.from_numpy(np.array(part)).to(device) for part in (cos, sin)]

    @torch.no_grad()
    def read(self, rows: np.ndarray) -> Batch:
        """Let the target read ``rows`` ``[rows, length]``: taps, and its most probable successors."""
        tokens = torch.from_numpy(rows.astype(np.int64)).to(self.device)
        taps: dict[int, torch.Tensor] = {}

        def keep(layer: int):
            def hook(_module, _inputs, output) -> None:
                taps[layer] = output[0] if isinstance(output, tuple) else output

            return hook

        layers = self.model.get_decoder().layers
        hooks = [layers[i].register_forward_hook(keep(i)) for i in self.config.target_layer_ids]
        try:
            logits = self.model(input_ids=tokens, use_cache=False).logits.float()
        finally:
            for hook in hooks:
                hook.remove()
        scores, ids = logits.topk(TOP, dim=-1)
        chosen = torch.cat([taps[i] for i in self.config.target_layer_ids], dim=-1)
        return Batch(tokens, chosen.to(self.dtype), ids, scores.softmax(-1))

    def learn(self, batch: Batch, step: int) -> dict[str, float]:
        """Take one step; return the loss and the tau before it."""
        anchors = self.plan.places(step, batch.tokens.shape[1]).astype(np.int64)
        loss, tau = self.loss(batch, torch.from_numpy(anchors).to(self.device))
        loss.backward()
        take_step(self.optimizers, self.weights.values(), self.plan, step)
        return {"loss": float(loss.detach()), "tau": float(tau)}

    def save(self, path: Path) -> None:
        """Write weights and moments."""
        state = {
            "weights": {name: value.detach() for name, value in self.weights.items()},
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }
        torch.save(state, path)

    def load(self, path: Path) -> None:
        """Go on from what :meth:`save` wrote."""
        state = torch.load(path, map_location=self.device, weights_only=True)
        with torch.no_grad():
            for name, value in state["weights"].items():
                self.weights[name].copy_(value)
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)

    def finish(self) -> None:
        """Put what was learnt into the drafter."""
        learnt = [(name, mx.array(value.detach().cpu().numpy())) for name, value in self.weights.items()]
        self.draft.update(tree.tree_unflatten(learnt))

    def loss(self, batch: Batch, anchors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss and the tau of the training blocks (committed tokens a verify step, greedily)."""
        plan, slots = self.plan, self.plan.block - 1
        states = self._hidden_states(batch, anchors)
        logits = self._head(states).float()
        at = anchors[..., None] + torch.arange(slots, device=self.device)
        row = torch.arange(len(at), device=self.device)[:, None, None]
        ids, probs = batch.top_ids[row, at], batch.top_probs[row, at]
        likely = logits.gather(-1, ids)
        losses = logits.logsumexp(-1) - 0.5 * likely[..., 0] - 0.5 * (likely * probs).sum(-1)

        best = ids[..., 0]
        on_path = (best == batch.tokens[row, at + 1])[..., :-1].float().cumprod(-1)
        on_path = functional.pad(on_path, (1, 0), value=1.0)
        fading = torch.exp(-torch.arange(slots, device=self.device) / plan.decay)
        weights = fading * (plan.off_path + (1 - plan.off_path) * on_path)
        loss = (losses * weights).sum() / weights.sum()

        hits = (logits.detach().argmax(-1) == best).float()
        return loss, 1 + (hits.cumprod(-1) * on_path).sum(-1).mean()

    def _head(self, states: torch.Tensor) -> torch.Tensor:
        logits = self._linear(states, self.head) * self.config.output_multiplier
        cap = self.config.final_logit_softcapping
        return torch.tanh(logits / cap) * cap if cap else logits

    def _linear(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.linear(x.to(self.dtype), weight.to(self.dtype))

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        x = x.float()
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config.rms_norm_eps)
        return x * scale * self.weights[f"{name}.weight"]

    def _hidden_states(self, batch: Batch, anchors: torch.Tensor) -> torch.Tensor:
        """Return the last states at the masks, ``[rows, anchors, block - 1, hidden]``.

        The counterpart of :func:`engine.train.drafter.blocks.hidden_states`.
        """
        config, block = self.config, self.plan.block
        rows, length = batch.tokens.shape
        count = anchors.shape[1]
        ids = torch.full((rows, count, block), config.mask_token_id, device=self.device)
        ids[..., 0] = batch.tokens.gather(1, anchors)
        states = functional.embedding(ids, self.table) * self.embed_scale
        states = states.reshape(rows, count * block, -1)
        context = self._norm(self._linear(batch.taps, self.weights["fc.weight"]), "hidden_norm")
        query_at = (anchors[..., None] + torch.arange(block, device=self.device)).reshape(rows, -1)
        key_at = torch.arange(length, device=self.device)
        before = key_at < anchors.repeat_interleave(block, dim=1)[..., None]
        for i in range(config.num_hidden_layers):
            window, name = config.window(i), f"layers.{i}"
            seen = before if window is None else before & (query_at[..., None] - key_at < window)
            x = self._norm(states, f"{name}.input_layernorm")
            states = states + self._attend(i, x, context, seen, query_at, key_at)
            x = self._norm(states, f"{name}.post_attention_layernorm")
            gate, up = (
                self._linear(x, self.weights[f"{name}.mlp.{part}_proj.weight"]) for part in ("gate", "up")
            )
            states = states + self._linear(
                functional.silu(gate) * up, self.weights[f"{name}.mlp.down_proj.weight"]
            )
        return self._norm(states.reshape(rows, count, block, -1)[:, :, 1:], "norm")

    def _attend(
        self,
        layer: int,
        x: torch.Tensor,
        context: torch.Tensor,
        seen: torch.Tensor,
        query_at: torch.Tensor,
        key_at: torch.Tensor,
    ) -> torch.Tensor:
        """Attend from every block to the context before it (``seen``) and to itself."""
        config, block, name = self.config, self.plan.block, f"layers.{layer}.self_attn"
        rows, queries, _ = x.shape
        dim, kv_heads = config.head_dim, config.num_key_value_heads
        repeats, count = config.num_attention_heads // kv_heads, queries // block

        def heads(source: torch.Tensor, kind: str) -> torch.Tensor:
            made = self._linear(source, self.weights[f"{name}.{kind}_proj.weight"])
            return made.reshape(rows, source.shape[1], -1, dim).transpose(1, 2)

        def turned(source: torch.Tensor, kind: str, at: torch.Tensor) -> torch.Tensor:
            made = self._norm(heads(source, kind), f"{name}.{kind}_norm")
            cos, sin = (part[at] for part in self.turns)
            cos, sin = (part[:, None] if part.ndim > MATRIX else part for part in (cos, sin))
            left, right = made.chunk(2, -1)
            return (made * cos + torch.cat([right, left], -1) * sin).to(self.dtype)

        q = turned(x, "q", query_at) * dim**-0.5
        own_k, own_v = turned(x, "k", query_at), heads(x, "v")
        k, v = turned(context, "k", key_at), heads(context, "v")

        q = q.reshape(rows, kv_heads, repeats * queries, dim)
        far = (q @ k.transpose(-1, -2)).reshape(rows, kv_heads, repeats, queries, -1)
        far = far.masked_fill(~seen[:, None, None], -1e9)
        grouped = q.reshape(rows, kv_heads, repeats, count, block, dim)
        own_k = own_k.reshape(rows, kv_heads, 1, count, block, dim)
        own_v = own_v.reshape(rows, kv_heads, 1, count, block, dim)
        near = grouped @ own_k.transpose(-1, -2)
        if config.causal(layer):
            later = torch.ones(block, block, dtype=torch.bool, device=self.device).triu(1)
            near = near.masked_fill(later, -1e9)
        near = near.reshape(rows, kv_heads, repeats, queries, block)

        weights = torch.cat([far, near], -1).softmax(-1)
        out = weights[..., :-block].reshape(rows, kv_heads, repeats * queries, -1) @ v
        near = weights[..., -block:].reshape(rows, kv_heads, repeats, count, block, block) @ own_v
        out = out.reshape(rows, -1, queries, dim) + near.reshape(rows, -1, queries, dim)
        return self._linear(
            out.transpose(1, 2).reshape(rows, queries, -1), self.weights[f"{name}.o_proj.weight"]
        )
