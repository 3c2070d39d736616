"""What a drafter's configuration consists of; :mod:``engine.dflash.config`` reads, checks and writes it."""

from dataclasses import dataclass
from typing import Any

FULL, SLIDING = "full_attention", "sliding_attention"
DFLASH, DFLASH2, DSPARK = "DFlashDraftModel", "DFlash2DraftModel", "DSparkDraftModel"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A drafter's shape.

    Attributes:
        hidden_size: the target's too: taps, embeddings and head are the target's.
        layer_types: for each layer, ``full_attention`` or ``sliding_attention``.
        sliding_window: a sliding layer's query sees the keys of this many last positions, its own included.
        is_causal: whether a block's rows see only earlier rows of the block; None is the published default,
            causal in sliding layers and not in full ones.
        target_layer_ids: the target's layers whose outputs the drafter reads, counted from 0.
        num_target_layers: how many layers the target has.
        mask_token_id: the target's token that stands where a token is to be drafted.
        block_size: rows of a block as trained: the last committed token, and the drafts.
        embed_scale: factor of the target's embedding rows before ``input_embedding_scale``; None if the checkpoint
            does not say. See :func:``engine.dflash.target.embeddings.embed_scale_of``.
        input_embedding_scale: factor of the embeddings, on top of the target's own.
        output_multiplier: factor of the logits, before the soft cap.
        rope_scaling: as mlx-lm reads it, or None.
        conv_kernel_size, conv_group_size, selector_rank, selector_top_k: DFlash2 only, 0 elsewhere.
        markov_rank: DSpark only, 0 elsewhere.
        enable_confidence_head, confidence_head_with_markov: DSpark only: whether there is such a head, and whether it
            reads the code of the token before, too.
        confidence_threshold: a DSpark block ends before the first draft whose confidence is below; 0 keeps it whole.
        sample_from_anchor: DSpark only: the last committed token's row predicts the first draft, so that a block
            has as many rows as drafts. Elsewhere that row predicts nothing.
        made_for: what the target is known by (:func:``engine.models.fit.identity``); None in published drafters.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    rms_norm_eps: float
    max_position_embeddings: int
    num_target_layers: int
    target_layer_ids: tuple[int, ...]
    mask_token_id: int
    block_size: int = 16
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    layer_types: tuple[str, ...] = ()
    sliding_window: int | None = None
    is_causal: bool | None = None
    final_logit_softcapping: float | None = None
    tie_word_embeddings: bool = False
    embed_scale: float | None = None
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    architecture: str = DFLASH
    conv_kernel_size: int = 0
    conv_group_size: int = 0
    selector_rank: int = 0
    selector_top_k: int = 0
    markov_rank: int = 0
    enable_confidence_head: bool = False
    confidence_head_with_markov: bool = False
    confidence_threshold: float = 0.0
    sample_from_anchor: bool = False
    made_for: dict[str, str] | None = None

    @property
    def taps_size(self) -> int:
        """Values of one position's concatenated taps."""
        return len(self.target_layer_ids) * self.hidden_size

    @property
    def is_dflash2(self) -> bool:
        """Whether the layers have convolutions and a selector picks the drafts."""
        return self.architecture == DFLASH2

    @property
    def is_dspark(self) -> bool:
        """Whether a Markov head makes each draft depend on the one before it."""
        return self.architecture == DSPARK

    @property
    def cuts(self) -> bool:
        """Whether the confidence head may shorten a block, for which drafting waits for the device."""
        return self.enable_confidence_head and self.confidence_threshold > 0

    @property
    def verified_rows(self) -> int:
        """The last committed token and as many drafts as a block was trained with."""
        return self.block_size + self.sample_from_anchor

    def causal(self, layer: int) -> bool:
        """Return whether rows of a block see only earlier rows of it in this layer."""
        return self.layer_types[layer] == SLIDING if self.is_causal is None else self.is_causal

    def window(self, layer: int) -> int | None:
        """Return the window of a sliding layer, None for a full one."""
        return self.sliding_window if self.layer_types[layer] == SLIDING else None
