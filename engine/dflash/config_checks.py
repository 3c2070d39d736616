"""What can be wrong with a drafter's configuration, in the order in which it is looked for."""

from collections.abc import Callable, Iterator, Mapping
from math import inf, isfinite
from typing import Any

from engine.dflash.shape import DFLASH2, DSPARK, FULL, SLIDING, Shape

Test = Callable[[Any], bool]

COUNTS = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("intermediate_size", "vocab_size", "max_position_embeddings", "num_target_layers", "block_size"),
)
HEADS = (
    *("markov_rank", "enable_confidence_head", "confidence_head_with_markov", "confidence_threshold"),
    "sample_from_anchor",
)
NUMBERS = ("rms_norm_eps", "rope_theta", "input_embedding_scale", "output_multiplier")
SWITCHES = (
    "tie_word_embeddings",
    "enable_confidence_head",
    "confidence_head_with_markov",
    "sample_from_anchor",
)
DFLASH2_COUNTS = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")


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


# A field's test, and what a value has to be.
KINDS: dict[str, tuple[Test, str]] = {
    **dict.fromkeys(COUNTS, (_whole(1), "a whole number of at least 1")),
    **dict.fromkeys(("mask_token_id", "markov_rank", *DFLASH2_COUNTS), (_whole(0), "a whole number")),
    **dict.fromkeys(NUMBERS, (_number(), "a number")),
    **dict.fromkeys(SWITCHES, (_boolean, "true or false")),
    **dict.fromkeys(("final_logit_softcapping", "embed_scale"), (_optional(_number()), "a number")),
    "target_layer_ids": (_layer_ids, "a list of layers"),
    "layer_types": (_strings, "a list of names"),
    "sliding_window": (_optional(_whole(2)), "a whole number of at least 2"),
    "is_causal": (_optional(_boolean), "true or false"),
    "confidence_threshold": (_number(0, 1), "a number from 0 to 1"),
    "rope_scaling": (_optional(_scaling), "one object for all layers"),
    "made_for": (_optional(_identity), "an object of strings"),
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
