"""The fields of a drafter's configuration; ``engine.dflash.config`` reads, checks and writes it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from math import inf, isfinite
from typing import Annotated, Any

FULL, SLIDING = "full_attention", "sliding_attention"
DFLASH, DFLASH2, DSPARK = "DFlashDraftModel", "DFlash2DraftModel", "DSparkDraftModel"

# The fields that only one architecture has.
DFLASH2_COUNTS = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
HEADS = (
    *("markov_rank", "enable_confidence_head", "confidence_head_with_markov", "confidence_threshold"),
    "sample_from_anchor",
)
Test = Callable[[Any], bool]


def _whole(least: int) -> Test:
    return lambda x: type(x) is int and x >= least


def _number(least: float = -inf, most: float = inf) -> Test:
    return lambda x: (
        isinstance(x, int | float) and not isinstance(x, bool) and isfinite(x) and least <= x <= most
    )


def _optional(test: Test) -> Test:
    return lambda x: x is None or test(x)


def _boolean(x: Any) -> bool:
    return isinstance(x, bool)


def _layer_ids(x: Any) -> bool:
    return isinstance(x, tuple) and x != () and all(map(_whole(0), x))


def _strings(x: Any) -> bool:
    return isinstance(x, tuple) and all(isinstance(item, str) for item in x)


def _scaling(x: Any) -> bool:
    return isinstance(x, dict) and not any(isinstance(value, dict) for value in x.values())


def _identity(x: Any) -> bool:
    return isinstance(x, dict) and _strings((*x, *x.values()))


# Types of fields, each with a test of its values, and a description of valid values.
Count = Annotated[int, _whole(1), "a whole number of at least 1"]
Whole = Annotated[int, _whole(0), "a whole number"]
Window = Annotated[int | None, _optional(_whole(2)), "a whole number of at least 2"]
Number = Annotated[float, _number(), "a number"]
Share = Annotated[float, _number(0, 1), "a number from 0 to 1"]
OptionalNumber = Annotated[float | None, _optional(_number()), "a number"]
Switch = Annotated[bool, _boolean, "true or false"]
OptionalSwitch = Annotated[bool | None, _optional(_boolean), "true or false"]
LayerIds = Annotated[tuple[int, ...], _layer_ids, "a list of layers"]
LayerTypes = Annotated[tuple[str, ...], _strings, "a list of names"]
Scaling = Annotated[dict[str, Any] | None, _optional(_scaling), "one object for all layers"]
Identity = Annotated[dict[str, str] | None, _optional(_identity), "an object of strings"]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A drafter's shape."""

    hidden_size: Count  # the target's too: taps, embeddings and head are the target's
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count
    head_dim: Count
    intermediate_size: Count
    vocab_size: Count
    rms_norm_eps: Number
    max_position_embeddings: Count
    num_target_layers: Count  # how many layers the target has
    target_layer_ids: LayerIds  # the target's layers whose outputs the drafter reads, counted from 0
    mask_token_id: Whole  # the target's token that stands where a token is to be drafted
    block_size: Count = 16  # rows of a block as trained: the last committed token, and the drafts
    rope_theta: Number = 10000.0
    rope_scaling: Scaling = None  # as mlx-lm reads it, or None
    layer_types: LayerTypes = ()  # for each layer, `full_attention` or `sliding_attention`
    # A sliding layer's query sees the keys of this many last positions, its own included.
    sliding_window: Window = None
    # Whether a block's rows see only earlier rows of the block; None is the published default, causal in
    # sliding layers and not in full ones.
    is_causal: OptionalSwitch = None
    final_logit_softcapping: OptionalNumber = None
    tie_word_embeddings: Switch = False
    # Factor of the target's embedding rows before `input_embedding_scale`; None if the checkpoint does not say.
    # See `engine.dflash.target.embeddings.embed_scale_of`.
    embed_scale: OptionalNumber = None
    input_embedding_scale: Number = 1.0  # factor of the embeddings, on top of the target's own
    output_multiplier: Number = 1.0  # factor of the logits, before the soft cap
    architecture: str = DFLASH
    conv_kernel_size: Whole = 0  # this one and the next three are of DFlash2 only, 0 elsewhere
    conv_group_size: Whole = 0
    selector_rank: Whole = 0
    selector_top_k: Whole = 0
    markov_rank: Whole = 0  # DSpark only, 0 elsewhere
    enable_confidence_head: Switch = False  # DSpark only: whether there is such a head
    confidence_head_with_markov: Switch = False  # whether it reads the code of the token before, too
    # A DSpark block ends before the first draft with less confidence; 0 keeps blocks whole.
    confidence_threshold: Share = 0.0
    # DSpark only: the last committed token's row predicts the first draft, so that a block has as many rows as
    # drafts. Elsewhere that row predicts nothing.
    sample_from_anchor: Switch = False
    # The identity of the target that the drafter was made for (`engine.models.fit.identity`); None in
    # published drafters.
    made_for: Identity = None

    @property
    def taps_size(self) -> int:
        """Values of one position's concatenated taps."""
        return len(self.target_layer_ids) * self.hidden_size

    @property
    def bytes_a_token(self) -> int:
        """Bytes that the context keeps for each accepted token, in float32."""
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim * 4

    @property
    def is_dflash2(self) -> bool:
        """Whether the layers have convolutions and a selector picks the drafts."""
        return self.architecture == DFLASH2

    @property
    def is_dspark(self) -> bool:
        """Whether a Markov head makes each draft depend on the previous draft."""
        return self.architecture == DSPARK

    @property
    def cuts(self) -> bool:
        """Whether the confidence head may shorten a block. Drafting then has to wait for the device."""
        return self.enable_confidence_head and self.confidence_threshold > 0

    @property
    def verified_rows(self) -> int:
        """The last committed token and as many drafts as a block was trained with."""
        return self.block_size + self.sample_from_anchor

    def causal(self, layer: int) -> bool:
        """Return whether a block's rows see only earlier rows of the block in this layer."""
        return self.layer_types[layer] == SLIDING if self.is_causal is None else self.is_causal

    def window(self, layer: int) -> int | None:
        """Return the window of a sliding layer, None for a full one."""
        return self.sliding_window if self.layer_types[layer] == SLIDING else None

    def wrong_values(self) -> Iterator[str]:
        """Yield the faults of single fields."""
        for field in fields(self):
            value = getattr(self, field.name)
            test, wanted = getattr(field.type, "__metadata__", (lambda _: True, ""))
            if not test(value):
                shown = list(value) if isinstance(value, tuple) else value
                yield f"{field.name} is {shown!r}, not {wanted}"

    def contradictions(self) -> Iterator[str]:
        """Yield the contradictions between fields."""
        if self.num_attention_heads % self.num_key_value_heads:
            yield f"{self.num_attention_heads} heads are no multiple of {self.num_key_value_heads}"
        if self.head_dim % 2:
            yield f"head_dim is {self.head_dim}: rotary positions pair its values"
        if len(self.layer_types) != self.num_hidden_layers:
            yield f"layer_types has {len(self.layer_types)} entries for {self.num_hidden_layers} layers"
        if unknown := sorted(set(self.layer_types) - {FULL, SLIDING}):
            yield f"layer_types has {', '.join(unknown)}: neither {FULL} nor {SLIDING}"
        if SLIDING in self.layer_types and self.sliding_window is None:
            yield f"layer_types has {SLIDING}, and there is no sliding_window"
        if len(set(self.target_layer_ids)) != len(self.target_layer_ids):
            yield f"target_layer_ids {list(self.target_layer_ids)} repeats a layer"
        if max(self.target_layer_ids) >= self.num_target_layers:
            yield f"target_layer_ids {list(self.target_layer_ids)} reaches beyond {self.num_target_layers} layers"
        if self.mask_token_id >= self.vocab_size:
            yield f"mask_token_id is {self.mask_token_id}, with {self.vocab_size} tokens"
        if self.is_dflash2:
            yield from self._dflash2()
        yield from self._dspark()

    def _dflash2(self) -> Iterator[str]:
        if missing := [name for name in DFLASH2_COUNTS if not getattr(self, name)]:
            yield f"there is no {', '.join(missing)}, which {DFLASH2} has"
        elif self.hidden_size % self.conv_group_size:
            yield f"hidden_size {self.hidden_size} is no multiple of conv_group_size {self.conv_group_size}"
        elif self.selector_top_k > self.vocab_size:
            yield f"selector_top_k is {self.selector_top_k}, with {self.vocab_size} tokens"

    def _dspark(self) -> Iterator[str]:
        if not self.is_dspark:
            if heads := [name for name in HEADS if getattr(self, name)]:
                yield f"there is {', '.join(heads)}, which only {DSPARK} has"
        elif not self.markov_rank:
            yield f"there is no markov_rank, which {DSPARK} has"
        elif self.final_logit_softcapping:
            yield "final_logit_softcapping with a Markov head: whether the cap comes before its term is not known"
        elif self.confidence_threshold and not self.enable_confidence_head:
            yield "there is a confidence_threshold, and no confidence head"
