"""The EAGLE-3 head (https://arxiv.org/abs/2503.01840): a layer over fused features of three of the target's layers.

A row joins the normed embedding of a token with the normed feature of the position before it. The first feature of a
chain fuses the target's layers; the next ones are the layer's own outputs. The head has a vocabulary of its own:
``d2t`` holds, for each of its tokens, the difference between the target's id and its own.
"""

from typing import Any

from engine.dflash.heads.chain import BoundHead
from engine.dflash.heads.eagle3_config import Eagle3Config
from engine.dflash.target.cpu_fast_path import quick_copy
from engine.dflash.target.embeddings import TargetEmbeddings
from engine.dflash.target.small_gemm import with_products
from engine.errors import BadInput
from engine.lm import base, rope_utils
from engine.mx import mx, nn


class Attention(nn.Module):
    """Attention whose input is twice as wide as the head."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        dim, heads, kv_heads = config.head_dim, config.num_attention_heads, config.num_key_value_heads
        self.dim, self.scale = dim, dim**-0.5
        self.q_proj = nn.Linear(2 * config.hidden_size, heads * dim, bias=False)
        self.k_proj = nn.Linear(2 * config.hidden_size, kv_heads * dim, bias=False)
        self.v_proj = nn.Linear(2 * config.hidden_size, kv_heads * dim, bias=False)
        self.o_proj = nn.Linear(heads * dim, config.hidden_size, bias=False)
        if config.qk_norm:
            self.q_norm = nn.RMSNorm(dim, eps=config.rms_norm_eps)
            self.k_norm = nn.RMSNorm(dim, eps=config.rms_norm_eps)
        self.rope = rope_utils.initialize_rope(
            dim,
            base=config.rope_theta,
            traditional=False,
            scaling_config=config.rope_scaling,
            max_position_embeddings=config.max_position_embeddings,
        )

    def __call__(self, x: mx.array, mask: Any, cache: Any) -> mx.array:
        """Return the attention's output ``[1, rows, hidden]``; keys and values are added to the cache."""
        queries, keys, values = (
            part(x).reshape(*x.shape[:2], -1, self.dim) for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        if "q_norm" in self:
            queries, keys = self.q_norm(queries), self.k_norm(keys)
        queries, keys, values = (part.swapaxes(1, 2) for part in (queries, keys, values))
        queries, keys = self.rope(queries, offset=cache.offset), self.rope(keys, offset=cache.offset)
        keys, values = cache.update_and_fetch(keys, values)
        out = base.scaled_dot_product_attention(
            queries, keys, values, cache=cache, scale=self.scale, mask=mask
        )
        attended: mx.array = self.o_proj(out.swapaxes(1, 2).reshape(*x.shape[:2], -1))
        return attended


class Mlp(nn.Module):
    """A gated MLP."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        """Return the MLP's output."""
        out: mx.array = self.down_proj(nn.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """The head's layer."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.norm_before_residual = config.norm_before_residual
        self.self_attn, self.mlp = Attention(config), Mlp(config)
        self.input_layernorm = nn.RMSNorm(size, eps=eps)  # of the embedding
        self.hidden_norm = nn.RMSNorm(size, eps=eps)  # of the feature
        self.post_attention_layernorm = nn.RMSNorm(size, eps=eps)

    def __call__(self, embedded: mx.array, feature: mx.array, mask: Any, cache: Any) -> mx.array:
        """Return the layer's output, without the last norm."""
        normed = self.hidden_norm(feature)
        x = mx.concatenate([self.input_layernorm(embedded), normed], axis=-1)
        y = (normed if self.norm_before_residual else feature) + self.self_attn(x, mask, cache)
        out: mx.array = y + self.mlp(self.post_attention_layernorm(y))
        return out


class Eagle3(nn.Module):
    """An EAGLE-3 head's weights, under their published names."""

    kind = "eagle3"

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        self.config = config
        wide = len(config.layer_ids or (0, 1, 2)) * config.target_hidden_size
        if config.norm_before_fc:
            self.input_norm = nn.RMSNorm(wide, eps=config.rms_norm_eps)
        if config.fc_norm:
            count = wide // config.target_hidden_size
            self.fc_norm = [
                nn.RMSNorm(config.target_hidden_size, eps=config.rms_norm_eps) for _ in range(count)
            ]
        self.fc = nn.Linear(wide, config.hidden_size, bias=False)
        self.layers = [Layer(config)]
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.draft_vocab_size, bias=False)
        if config.own_embeddings:
            self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        # Not a parameter: the target's ids of the head's tokens, or None if both count alike.
        self._ids: list[int] | None = None

    def use_ids(self, ids: list[int] | None) -> None:
        """Set the target's ids of the draft vocabulary; None if both count alike."""
        self._ids = ids

    @property
    def ids(self) -> list[int] | None:
        """The target's ids of the draft vocabulary; None if both count alike."""
        return self._ids

    def layer_ids(self, target: nn.Module) -> tuple[int, ...]:
        """Return the layers of a target whose outputs the head reads."""
        return self.config.layer_ids or self.config.default_layer_ids(TargetEmbeddings.of(target).layers)

    def bind(self, target: nn.Module) -> BoundHead:
        """Return this head with a target's embeddings; BadInput if it was made for another target."""
        parts = TargetEmbeddings.of(with_products(target))
        parts.check_sizes(None, self.config.target_hidden_size, self.config.vocab_size)
        if (last := max(self.layer_ids(target))) >= parts.layers:
            raise BadInput(
                f"the head reads layer {last}, and this target has layers 0 to {parts.layers - 1}",
                "take the head that was published for this target",
            )
        if not self.config.own_embeddings and self.config.hidden_size != self.config.target_hidden_size:
            raise BadInput(
                f"the head is {self.config.hidden_size} wide and has no embed_tokens, and the target's embeddings are "
                f"{self.config.target_hidden_size} wide",
                "take a checkpoint with embed_tokens",
            )
        return BoundHead(BoundEagle3(self, parts))


class BoundEagle3:
    """The head's computations, with the target's embeddings if it has none of its own."""

    def __init__(self, head: Eagle3, parts: TargetEmbeddings) -> None:
        self.config = head.config
        self.model: Any = quick_copy(head)
        self.embed = self.model.embed_tokens if head.config.own_embeddings else parts.embed
        self.taps_size, self.hidden_size = head.fc.weight.shape[1], head.config.hidden_size
        self.table = None if head.ids is None else mx.array(head.ids, mx.int32)

    def feature(self, taps: mx.array) -> mx.array:
        """Return the fused features of taps."""
        if self.config.norm_before_fc:
            taps = self.model.input_norm(taps)
        if self.config.fc_norm:
            parts = mx.split(taps, len(self.model.fc_norm), axis=-1)
            taps = mx.concatenate(
                [n(part) for n, part in zip(self.model.fc_norm, parts, strict=True)], axis=-1
            )
        fused: mx.array = self.model.fc(taps)
        return fused

    def step(self, tokens: mx.array, features: mx.array, mask: Any, cache: Any) -> mx.array:
        """Return the layer's output."""
        out: mx.array = self.model.layers[0](self.embed(tokens), features, mask, cache)
        return out

    def logits(self, output: mx.array) -> mx.array:
        """Return the logits over the draft vocabulary."""
        scores: mx.array = self.model.lm_head(self.model.norm(output))
        return scores

    def recycled(self, output: mx.array) -> mx.array:
        """Return the output itself, or in EAGLE-3.1 its norm."""
        return self.model.norm(output) if self.config.norm_feedback else output

    def target_ids(self, drafts: mx.array) -> mx.array:
        """Return the target's ids."""
        return drafts.astype(mx.int32) if self.table is None else self.table[drafts]

    def candidates(self) -> mx.array | None:
        """Return the target's ids of the whole draft vocabulary."""
        return self.table
