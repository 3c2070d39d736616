"""The drafter's layers in torch: a second implementation, for training and for comparison with MLX.

Embeddings and head are the target's, in MLX; arrays that cross between the libraries are counted. Torch is optional:
importing this module without it raises MissingPackage.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from engine.dflash.config import DraftConfig
from engine.dflash.drafter.model import DFlashDrafter
from engine.dflash.drafter.protocol import Proposal, token_array
from engine.dflash.shape import DFLASH
from engine.dflash.target.embeddings import DraftEmbeddings, TargetEmbeddings
from engine.dflash.target.rotary import Rotations
from engine.errors import BadInput, MissingPackage
from engine.mx import mx, nn, tree

try:
    import torch
    from torch.nn import functional
except ImportError as error:
    raise MissingPackage(
        f"the drafter in torch needs torch: {error}", "install it: pip install torch==2.13.0"
    ) from error

Pair = tuple[torch.Tensor, torch.Tensor]
MATRIX = 2
VERSION = str(torch.__version__)


class TorchLayers:
    """The arithmetic of the layers, over weights by their published names, with matrix products in ``dtype``."""

    def __init__(
        self, config: DraftConfig, weights: dict[str, torch.Tensor], device: str, dtype: torch.dtype
    ) -> None:
        self.config, self.weights, self.device, self.dtype = config, weights, device, dtype
        cos, sin = Rotations.of(config).at(0, config.max_position_embeddings)
        self._turns = [torch.from_numpy(np.array(part)).to(device) for part in (cos, sin)]

    def linear(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Return ``x W^T``."""
        return functional.linear(x.to(self.dtype), weight.to(self.dtype))

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """Return the RMS norm of that name, float32."""
        x = x.float()
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config.rms_norm_eps)
        return x * scale * self.weights[f"{name}.weight"]

    def fused_taps(self, taps: torch.Tensor) -> torch.Tensor:
        """Return the inputs of the layers' keys and values of the context."""
        return self.norm(self.linear(taps, self.weights["fc.weight"]), "hidden_norm")

    def context(self, layer: int, x: torch.Tensor, at: torch.Tensor) -> Pair:
        """Return a layer's keys and values ``[rows, kv heads, length, dim]`` of states at positions ``at``."""
        return self._turned(layer, x, "k", at), self._heads(layer, x, "v")

    def mlp(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        """Return a layer's MLP of ``x``, its norm included."""
        name = f"layers.{layer}"
        x = self.norm(x, f"{name}.post_attention_layernorm")
        gate, up = (self.linear(x, self.weights[f"{name}.mlp.{part}_proj.weight"]) for part in ("gate", "up"))
        return self.linear(functional.silu(gate) * up, self.weights[f"{name}.mlp.down_proj.weight"])

    def attend(
        self,
        layer: int,
        states: torch.Tensor,
        before: Pair,
        visible: torch.Tensor,
        at: torch.Tensor,
        block: int,
    ) -> torch.Tensor:
        """Let every block of rows attend to the context before it and to itself; return the layer's update.

        States are ``[rows, blocks * block, hidden]``, not yet normed, at positions ``[rows, blocks * block]``.
        ``context`` holds the context's keys and values; ``visible``, ``[rows, blocks * block, length]``, says which of
        its positions each row sees.
        """
        config = self.config
        x = self.norm(states, f"layers.{layer}.input_layernorm")
        rows, queries, _ = x.shape
        dim, kv_heads = config.head_dim, config.num_key_value_heads
        repeats, count = config.num_attention_heads // kv_heads, queries // block

        q = self._turned(layer, x, "q", at) * dim**-0.5
        own_k, own_v = self.context(layer, x, at)
        k, v = before

        q = q.reshape(rows, kv_heads, repeats * queries, dim)
        far = (q @ k.transpose(-1, -2)).reshape(rows, kv_heads, repeats, queries, -1)
        far = far.masked_fill(~visible[:, None, None], -1e9)
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
        return self.linear(
            out.transpose(1, 2).reshape(rows, queries, -1),
            self.weights[f"layers.{layer}.self_attn.o_proj.weight"],
        )

    def _heads(self, layer: int, source: torch.Tensor, kind: str) -> torch.Tensor:
        projected = self.linear(source, self.weights[f"layers.{layer}.self_attn.{kind}_proj.weight"])
        return projected.reshape(*source.shape[:2], -1, self.config.head_dim).transpose(1, 2)

    def _turned(self, layer: int, source: torch.Tensor, kind: str, at: torch.Tensor) -> torch.Tensor:
        normed = self.norm(self._heads(layer, source, kind), f"layers.{layer}.self_attn.{kind}_norm")
        cos, sin = (part[at] for part in self._turns)
        cos, sin = (part[:, None] if part.ndim > MATRIX else part for part in (cos, sin))
        a, b = normed.chunk(2, -1)
        return (normed * cos + torch.cat([b, a], -1) * sin).to(self.dtype)


@dataclass
class Crossings:
    """Counts the arrays that went from one library to the other, and their bytes."""

    count: int = 0
    nbytes: int = 0

    def clear(self) -> None:
        """Reset the counts."""
        self.count = self.nbytes = 0


class TorchDrafter:
    """A drafter whose layers run in torch, for a target in MLX. It can replace a ``DFlashDrafter``.

    The weights of ``draft`` are copied, in float32, to a device of torch; None is the best one.

    Raises:
        BadInput: the drafter is a DFlash2 or DSpark one, or torch does not find the device.
    """

    kind = "dflash"

    def __init__(self, draft: DFlashDrafter, device: str | None = None) -> None:
        if draft.config.architecture != DFLASH:
            raise BadInput(
                "the torch drafter supports only the first version of DFlash", "use this drafter in MLX"
            )
        best = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        self.config, self.device = draft.config, device or best
        self.crossings = Crossings()  # since they were cleared
        try:
            weights = {
                name: torch.from_numpy(np.array(value.astype(mx.float32))).to(self.device)
                for name, value in tree.tree_flatten(draft.parameters())
            }
        except (RuntimeError, AssertionError) as error:
            raise BadInput(f"torch cannot use {self.device}: {error}", "choose another device") from error
        self.layers = TorchLayers(self.config, weights, self.device, torch.float32)

    def layer_ids(self, target: nn.Module) -> tuple[int, ...]:  # noqa: ARG002 - the configuration has them
        """Return the layers of a target whose outputs the drafter reads."""
        return self.config.target_layer_ids

    def bind(self, target: nn.Module, embed_scale: float | None = None) -> "BoundTorch":
        """Return this drafter with a target's embeddings and head; see ``DFlashDrafter.bind``."""
        embeddings = TargetEmbeddings.of(target)
        embeddings.check(self.config)
        return BoundTorch(self, DraftEmbeddings(embeddings, self.config, embed_scale))


@dataclass
class TorchContext:
    """Keys and values of each layer, of all accepted tokens; ``state`` as of ``DraftContext``."""

    offset: int = 0
    pairs: list[Pair] = field(default_factory=list)
    state: list[mx.array] = field(default_factory=list)
    start: int = 0


class BoundTorch:
    """The counterpart of ``engine.dflash.drafter.model.BoundDFlash``."""

    shared = None

    def __init__(self, drafter: TorchDrafter, embeddings: DraftEmbeddings) -> None:
        self.drafter, self.config, self.embeddings = drafter, drafter.config, embeddings

    def make_cache(self, offset: int = 0) -> TorchContext:
        """Return an empty context."""
        return TorchContext(offset, start=offset)

    def absorb(self, taps: mx.array, context: TorchContext, tokens: mx.array | None = None) -> None:  # noqa: ARG002
        """Append accepted tokens to the context."""
        layers, new = self.drafter.layers, taps.shape[1]
        states = layers.fused_taps(self._there(taps))
        at = torch.arange(context.offset, context.offset + new, device=layers.device)
        pairs = [layers.context(i, states, at) for i in range(self.config.num_hidden_layers)]
        if context.pairs:
            both = zip(context.pairs, pairs, strict=True)
            pairs = [(torch.cat([k, new_k], 2), torch.cat([v, new_v], 2)) for (k, v), (new_k, new_v) in both]
        context.pairs = pairs
        context.offset += new

    def propose(
        self,
        bonus: int | mx.array,
        taps: mx.array | None,
        context: TorchContext,
        n_drafts: int,
        pick: Callable[[mx.array], mx.array] | None = None,
        tokens: mx.array | None = None,  # noqa: ARG002
    ) -> Proposal:
        """Draft the tokens after ``bonus``; see ``BoundDFlash.propose``. Torch has computed when it returns."""
        if taps is not None and taps.shape[1]:
            self.absorb(taps, context)
        layers, config, block = self.drafter.layers, self.config, n_drafts + 1
        masks = mx.full((n_drafts,), config.mask_token_id, mx.int32)
        block_ids = mx.concatenate([token_array(bonus).astype(mx.int32), masks])
        states = self._there(self.embeddings.embed(block_ids)[None])
        at = torch.arange(context.offset, context.offset + block, device=layers.device)[None]
        key_at = torch.arange(context.start, context.offset, device=layers.device)
        empty = torch.zeros((1, config.num_key_value_heads, 0, config.head_dim), device=layers.device)
        for i in range(config.num_hidden_layers):
            visible = at[..., None] - key_at < (config.window(i) or inf)
            before = context.pairs[i] if context.pairs else (empty, empty)
            states = states + layers.attend(i, states, before, visible, at, block)
            states = states + layers.mlp(i, states)
        hidden = self._back(layers.norm(states, "norm")[0, 1:])
        raw = self.embeddings.logits(hidden)
        logits = self.embeddings.cap(raw)[None]
        return Proposal(mx.argmax(raw, axis=-1)[None] if pick is None else pick(logits), logits)

    def _there(self, x: mx.array) -> torch.Tensor:
        array = np.array(x.astype(mx.float32))
        self._count(array)
        return torch.from_numpy(array).to(self.drafter.device)

    def _back(self, x: torch.Tensor) -> mx.array:
        array: Any = x.cpu().numpy()
        self._count(array)
        return mx.array(array)

    def _count(self, x: Any) -> None:
        self.drafter.crossings.count += 1
        self.drafter.crossings.nbytes += x.nbytes
