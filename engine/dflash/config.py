"""The configuration of a drafter: reads a published ``config.json`` strictly, and writes it with the same keys.

The layout is that of the DFlash checkpoints (https://github.com/z-lab/dflash): a Qwen3 configuration, with the
drafter's own keys under ``dflash_config``. Keys that change nothing in this engine are ignored; keys that
request a feature that it lacks are refused.

DSpark checkpoints come in two layouts. DeepSpec's own (``Qwen3DSparkModel``) has every key at the top level, and blocks
in which the last committed token's row predicts the first draft. ``DSparkDraftModel`` may have its keys under
``dflash_config`` too, and is published with either kind of block.
"""

from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from engine.dflash.shape import DFLASH, DFLASH2, DFLASH2_COUNTS, DSPARK, FULL, HEADS, SLIDING, Shape
from engine.errors import BadInput

# Keys below `dflash_config`; all other keys are at the top level.
NESTED = ("mask_token_id", "target_layer_ids", "embed_scale", "input_embedding_scale", "output_multiplier")
KNOWN = (DFLASH, DFLASH2, DSPARK)
EITHER = ("block_size", "final_logit_softcapping", *HEADS)  # in either place
NATIVE = "Qwen3DSparkModel"
ANCHOR = "sample_from_anchor"
# The variant of DSpark that this engine has: any other value of these keys is refused.
DSPARK_ONLY: dict[str, Any] = {
    "markov_head_type": "vanilla",
    "projector_type": "dspark",
    "attention_mode": "gqa",
    "log_snr_conditioning": False,
    "topk_context": 0,
    "draft_adapter_rank": 0,
    "attention_sink": False,
    "gated_q_proj": False,
}
DSPARK_FIX = "take a DSpark checkpoint with a Qwen3 body and a vanilla Markov head"
FIX = "take config.json and the weights from the same checkpoint, one of DFlash's"


@dataclass(frozen=True, kw_only=True)
class DraftConfig(Shape):
    """A drafter's shape, with values that are consistent with each other."""

    def __post_init__(self) -> None:
        for problem in self.wrong_values():
            raise BadInput(problem, FIX)
        if not self.layer_types:
            object.__setattr__(self, "layer_types", (FULL,) * self.num_hidden_layers)
        for problem in self.contradictions():
            raise BadInput(problem, FIX)

    @classmethod
    def from_json(cls, data: Any, source: str = "config.json") -> "DraftConfig":
        """Read the published keys of a JSON file, which errors call ``source``.

        Raises:
            BadInput: a key is missing, has the wrong type, or contradicts another; or this engine does not have
                the architecture, a layer type or a feature.
        """
        try:
            return cls(**_published(_without_dspark_keys(data)))
        except BadInput as error:
            raise BadInput(f"{source}: {error.message}", error.fix) from error

    def to_json(self) -> dict[str, Any]:
        """Return the published keys, so that the ``dflash`` package can load files written by this engine."""
        absent = {"architecture"} | {
            *(name for name in ("embed_scale", "made_for") if getattr(self, name) is None),
            *(() if self.is_dflash2 else DFLASH2_COUNTS),
            *(() if self.is_dspark else HEADS),
        }
        values = {
            name: list(x) if isinstance(x, tuple) else x
            for name, x in asdict(self).items()
            if name not in absent
        }
        nested = {name: values.pop(name) for name in NESTED + DFLASH2_COUNTS if name in values}
        return {
            "architectures": [self.architecture],
            "model_type": "qwen3",
            "hidden_act": "silu",
            "attention_bias": False,
            **values,
            "use_sliding_window": SLIDING in self.layer_types,
            "dflash_config": nested,
        }


def _without_dspark_keys(data: Any) -> Any:
    """Return a DSpark configuration with DFlash's keys and the fields of its heads; others are not changed."""
    names = data.get("architectures") if isinstance(data, dict) else None
    if names not in ([NATIVE], [DSPARK]):
        return data
    nested = data.get("dflash_config") or {}
    if "transformer_layer_config" in data or not isinstance(nested, dict):
        raise BadInput(
            "this is a DSpark drafter in the layout of speculators, with its body's keys nested", DSPARK_FIX
        )
    for key, only in DSPARK_ONLY.items():
        for value in (data.get(key), nested.get(key)):
            if value not in (None, only):
                raise BadInput(f"{key} is {value!r}, only {only!r} is known here", DSPARK_FIX)
    if data.get("draft_vocab_size") not in (None, data.get("vocab_size")):
        raise BadInput(
            f"draft_vocab_size is {data['draft_vocab_size']}, not the target's vocabulary", DSPARK_FIX
        )
    if names == [DSPARK] and data.get(ANCHOR) is None and nested.get(ANCHOR) is None:
        raise BadInput(
            f"there is no {ANCHOR}: {DSPARK} checkpoints of both layouts are published",
            f'add "{ANCHOR}": true if the last committed token\'s row predicts the first draft, else false',
        )
    moved = {name: data[name] for name in ("mask_token_id", "target_layer_ids") if data.get(name) is not None}
    for name, value in moved.items():
        if nested.get(name) not in (None, value):
            raise BadInput(f"{name} is {value} at the top, {nested[name]} in dflash_config", DSPARK_FIX)
    anchor = next((x for x in (data.get(ANCHOR), nested.get(ANCHOR)) if x is not None), True)
    rest = {name: value for name, value in data.items() if name not in moved}
    return {**rest, "architectures": [DSPARK], ANCHOR: anchor, "dflash_config": {**nested, **moved}}


def _published(data: Any) -> dict[str, Any]:
    """Return the fields of a configuration from its published keys."""
    nested = data.get("dflash_config") if isinstance(data, dict) else None
    if not isinstance(nested, dict):
        raise BadInput("there is no dflash_config: this is not a DFlash drafter's configuration", FIX)
    _refuse_unsupported(data)
    inside = {name: nested.get(name) for name in NESTED + DFLASH2_COUNTS + EITHER}
    outside = {f.name: data.get(f.name) for f in fields(DraftConfig) if f.name not in NESTED + DFLASH2_COUNTS}
    for name in EITHER:
        if inside[name] is None:
            inside[name] = outside[name]
        elif outside[name] not in (None, inside[name]):
            raise BadInput(f"{name} is {outside[name]} at the top, {inside[name]} in dflash_config", FIX)
    published = {**outside, **inside, **_rope(data), "architecture": _architecture(data)}
    published = {
        name: tuple(x) if isinstance(x, list) else x for name, x in published.items() if x is not None
    }
    missing = [f.name for f in fields(DraftConfig) if f.default is MISSING and f.name not in published]
    if missing:
        raise BadInput(f"there is no {', '.join(missing)}", FIX)
    return published


def _rope(data: dict[str, Any]) -> dict[str, Any]:
    """Return base and scaling: newer configurations keep both under ``rope_parameters``."""
    base, scaling = data.get("rope_theta"), data.get("rope_parameters") or data.get("rope_scaling")
    within = scaling.get("rope_theta") if isinstance(scaling, dict) else None
    if None not in (base, within) and base != within:
        raise BadInput(f"rope_theta is {base}, and {within} among the rope's parameters", FIX)
    return {"rope_theta": within if base is None else base, "rope_scaling": scaling}


def _architecture(data: dict[str, Any]) -> str:
    names = data.get("architectures") or [DFLASH]
    if not isinstance(names, list) or len(names) != 1 or names[0] not in KNOWN:
        raise BadInput(f"architectures is {names!r}, not one of {', '.join(KNOWN)}", FIX)
    architecture: str = names[0]
    return architecture


def _refuse_unsupported(data: dict[str, Any]) -> None:
    if data.get("quantization") or data.get("quantization_config"):
        raise BadInput(
            "the weights are quantized", "load the unquantized drafter, then quantize it in memory"
        )
    for key, only in (("hidden_act", "silu"), ("attention_bias", False)):
        if data.get(key, only) != only:
            raise BadInput(f"{key} is {data[key]!r}, drafters have {only!r}", FIX)
