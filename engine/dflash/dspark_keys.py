"""Translates the keys of DSpark checkpoints into those of :mod:``engine.dflash.config``; refuses what they leave open.

Two layouts are read: DeepSpec's own (``Qwen3DSparkModel``), with every key at the top and blocks in which the last
committed token's row predicts the first draft; and ``DSparkDraftModel``, whose keys may also stand under
``dflash_config``, and of which checkpoints with either kind of block are published.
"""

from typing import Any

from engine.dflash.shape import DSPARK
from engine.errors import BadInput

NATIVE = "Qwen3DSparkModel"
ANCHOR = "sample_from_anchor"
FIX = "take a DSpark checkpoint with a Qwen3 body and a vanilla Markov head"
# What this engine's DSpark does; a key with any other value asks for something else.
ONLY: dict[str, tuple[Any, ...]] = {
    "markov_head_type": ("vanilla",),
    "projector_type": ("dspark",),
    "attention_mode": ("gqa",),
    "log_snr_conditioning": (False,),
    "topk_context": (0,),
    "draft_adapter_rank": (0,),
    "attention_sink": (False,),
    "gated_q_proj": (False,),
}
MOVED = ("mask_token_id", "target_layer_ids")  # from the top into dflash_config


def normalize(data: Any) -> Any:
    """Return a DSpark configuration under DFlash's keys, with those of its heads; return any other unchanged.

    Raises:
        BadInput: a DSpark checkpoint of another layout, with another head, or that leaves open which row predicts
            the first draft.
    """
    names = data.get("architectures") if isinstance(data, dict) else None
    if names not in ([NATIVE], [DSPARK]):
        return data
    nested = data.get("dflash_config") or {}
    if "transformer_layer_config" in data or not isinstance(nested, dict):
        raise BadInput(
            "this is a DSpark drafter in the layout of speculators, with its body's keys nested", FIX
        )
    for key, values in ONLY.items():
        for value in (data.get(key), nested.get(key)):
            if value is not None and value not in values:
                raise BadInput(f"{key} is {value!r}, only {values[0]!r} is known here", FIX)
    if data.get("draft_vocab_size") not in (None, data.get("vocab_size")):
        raise BadInput(f"draft_vocab_size is {data['draft_vocab_size']}, not the target's vocabulary", FIX)
    anchor = [x for x in (data.get(ANCHOR), nested.get(ANCHOR)) if x is not None] or [
        names == [NATIVE] or None
    ]
    if anchor[0] is None:
        raise BadInput(
            f"there is no {ANCHOR}: {DSPARK} checkpoints of both layouts are published",
            f'add "{ANCHOR}": true if the last committed token\'s row predicts the first draft, else false',
        )
    moved = {name: data[name] for name in MOVED if data.get(name) is not None}
    for name, value in moved.items():
        if nested.get(name) not in (None, value):
            raise BadInput(f"{name} is {value} at the top, {nested[name]} in dflash_config", FIX)
    rest = {name: value for name, value in data.items() if name not in MOVED}
    return {**rest, "architectures": [DSPARK], ANCHOR: anchor[0], "dflash_config": {**nested, **moved}}
