"""What can be wrong with a drafter's configuration, in the order in which it is looked for."""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from engine.dflash.shape import DFLASH2, DSPARK, FULL, SLIDING, Shape


def _count(value: Any, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _whole(value: Any) -> bool:
    return _count(value, least=0)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _share(value: Any) -> bool:
    return _number(value) and 0 <= value <= 1


def _layer_ids(value: Any) -> bool:
    return isinstance(value, tuple) and value != () and all(map(_whole, value))


def _window(value: Any) -> bool:
    return value is None or _count(value, least=2)


def _optional_number(value: Any) -> bool:
    return value is None or _number(value)


def _boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _causal(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _scaling(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and not any(isinstance(x, dict) for x in value.values()))


def _identity(value: Any) -> bool:
    return value is None or (
        isinstance(value, dict) and all(isinstance(x, str) for pair in value.items() for x in pair)
    )


def _strings(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(x, str) for x in value)


COUNTS = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("intermediate_size", "vocab_size", "max_position_embeddings", "num_target_layers", "block_size"),
)
HEADS = (
    *("markov_rank", "enable_confidence_head", "confidence_head_with_markov", "confidence_threshold"),
    "sample_from_anchor",
)
DFLASH2_COUNTS = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")

# A field's test, and what a value has to be.
KINDS = {
    **dict.fromkeys(COUNTS, (_count, "a whole number of at least 1")),
    **dict.fromkeys(("mask_token_id", "markov_rank", *DFLASH2_COUNTS), (_whole, "a whole number")),
    **dict.fromkeys(("rms_norm_eps", "rope_theta"), (_number, "a number")),
    **dict.fromkeys(("input_embedding_scale", "output_multiplier"), (_number, "a number")),
    "target_layer_ids": (_layer_ids, "a list of layers"),
    "layer_types": (_strings, "a list of names"),
    "sliding_window": (_window, "a whole number of at least 2"),
    "is_causal": (_causal, "true or false"),
    **dict.fromkeys(
        (
            "tie_word_embeddings",
            "enable_confidence_head",
            "confidence_head_with_markov",
            "sample_from_anchor",
        ),
        (_boolean, "true or false"),
    ),
    "confidence_threshold": (_share, "a number from 0 to 1"),
    "final_logit_softcapping": (_optional_number, "a number"),
    "embed_scale": (_optional_number, "a number"),
    "rope_scaling": (_scaling, "one object for all layers"),
    "made_for": (_identity, "an object of strings"),
}


def wrong_values(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of single fields."""
    for name, (test, wanted) in KINDS.items():
        if not test(values[name]):
            value = list(values[name]) if isinstance(values[name], tuple) else values[name]
            yield f"{name} is {value!r}, not {wanted}"


def contradictions(config: Shape) -> Iterator[str]:
    """Yield the contradictions between fields."""
    if config.num_attention_heads % config.num_key_value_heads:
        yield f"{config.num_attention_heads} heads are no multiple of {config.num_key_value_heads}"
    if config.head_dim % 2:
        yield f"head_dim is {config.head_dim}: rotary positions pair its values"
    if len(config.layer_types) != config.num_hidden_layers:
        yield f"layer_types has {len(config.layer_types)} entries for {config.num_hidden_layers} layers"
    if unknown := sorted(set(config.layer_types) - {FULL, SLIDING}):
        yield f"layer_types has {', '.join(unknown)}: neither {FULL} nor {SLIDING}"
    if SLIDING in config.layer_types and config.sliding_window is None:
        yield f"layer_types has {SLIDING}, and there is no sliding_window"
    if len(set(config.target_layer_ids)) != len(config.target_layer_ids):
        yield f"target_layer_ids {list(config.target_layer_ids)} repeats a layer"
    if max(config.target_layer_ids) >= config.num_target_layers:
        yield f"target_layer_ids {list(config.target_layer_ids)} reaches beyond {config.num_target_layers} layers"
    if config.mask_token_id >= config.vocab_size:
        yield f"mask_token_id is {config.mask_token_id}, with {config.vocab_size} tokens"
    if config.architecture == DFLASH2:
        yield from _dflash2(config)
    yield from _dspark(config)


def _dflash2(config: Shape) -> Iterator[str]:
    if missing := [name for name in DFLASH2_COUNTS if not getattr(config, name)]:
        yield f"there is no {', '.join(missing)}, which {DFLASH2} has"
    elif config.hidden_size % config.conv_group_size:
        yield f"hidden_size {config.hidden_size} is no multiple of conv_group_size {config.conv_group_size}"
    elif config.selector_top_k > config.vocab_size:
        yield f"selector_top_k is {config.selector_top_k}, with {config.vocab_size} tokens"


def _dspark(config: Shape) -> Iterator[str]:
    if config.architecture != DSPARK:
        if heads := [name for name in HEADS if getattr(config, name)]:
            yield f"there is {', '.join(heads)}, which only {DSPARK} has"
    elif not config.markov_rank:
        yield f"there is no markov_rank, which {DSPARK} has"
    elif config.final_logit_softcapping:
        yield "final_logit_softcapping with a Markov head: whether the cap comes before its term is not known"
    elif config.confidence_threshold and not config.enable_confidence_head:
        yield "there is a confidence_threshold, and no confidence head"
