"""The configuration of an EAGLE-3 head: reads the published forms strictly, and writes SpecForge's.

There are two forms. SpecForge and ModelOpt write a flat configuration of a Llama, and ``eagle_config``. Speculators
writes ``speculators_model_type`` and nests the layer under ``transformer_layer_config``. The same keys mean different
things in some of them: what cannot be told from the file is refused, with a key that says it.
"""

from dataclasses import dataclass
from typing import Any

from engine.errors import BadInput

ARCHITECTURES = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "Eagle3Speculator", "Eagle3DraftModel")
IDS, MEANING = "eagle_aux_hidden_state_layer_ids", "layer_ids_count"
MEANINGS = {"outputs": 0, "boundaries": 1}  # what is subtracted for the layer whose output is meant
FEEDBACK = "norm_feedback"
DRAFTS, MOST_DRAFTS = 7, 15  # in a chain, if the checkpoint does not say; and at most
FIX = "take config.json and the weights from the same checkpoint, an EAGLE-3 head's"
COUNTS = ("hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
# Keys that may only have these values: any other requests something that this engine lacks.
ONLY: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "num_hidden_layers": (1,),
    "partial_rotary_factor": (1, 1.0),
    "use_sliding_window": (False,),
    "use_aux_hidden_state": (True,),
    "use_input_layernorm_in_first_layer": (True,),
    "use_last_layernorm": (True,),
    "use_mtp_layernorm": (False,),
    "parallel_draft_step": (1,),
    "parallel_drafting": (False,),
}
KNOWN_NESTED = {
    *ONLY,
    *COUNTS,
    IDS,
    MEANING,
    FEEDBACK,
    "draft_vocab_size",
    "target_hidden_size",
    "norm_output",
}


@dataclass(frozen=True, kw_only=True)
class Eagle3Config:
    """A head's shape, and where its inputs come from."""

    hidden_size: int
    target_hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int  # the target's
    draft_vocab_size: int
    rms_norm_eps: float
    rope_theta: float = 10_000.0
    rope_scaling: dict[str, Any] | None = None
    max_position_embeddings: int = 4096
    # The target's layers whose outputs are fused, from 0; None for the reference's choice, see `default_layer_ids`.
    layer_ids: tuple[int, ...] | None = None
    norm_before_residual: bool = False
    norm_before_fc: bool = False  # one norm over all taps
    fc_norm: bool = False  # a norm for each tap
    norm_feedback: bool = False  # EAGLE-3.1: the layer's output is fed back normed
    qk_norm: bool = False
    own_embeddings: bool = False  # whether the head has an embedding table of its own
    drafts: int = DRAFTS
    made_for: dict[str, str] | None = None  # as of DFlash's drafters

    cuts = False
    confidence_threshold = 0.0

    @property
    def verified_rows(self) -> int:
        """The last committed token and the most drafts of a chain."""
        return self.drafts + 1

    @property
    def bytes_a_token(self) -> int:
        """Bytes that the context keeps for each accepted token, in float32."""
        return 2 * self.num_key_value_heads * self.head_dim * 4

    @staticmethod
    def default_layer_ids(layers: int) -> tuple[int, ...]:
        """Return the layers that all implementations take without a choice: early, middle and late."""
        return 1, layers // 2 - 1, layers - 4

    def to_json(self) -> dict[str, Any]:
        """Return the configuration in SpecForge's form."""
        ids = {IDS: list(self.layer_ids), MEANING: "outputs"} if self.layer_ids else {}
        flags = ("norm_before_residual", "norm_before_fc", "fc_norm", FEEDBACK)
        sizes = (*COUNTS, "target_hidden_size", "draft_vocab_size", "num_key_value_heads", "head_dim")
        rest = ("rms_norm_eps", "rope_theta", "rope_scaling", "max_position_embeddings")
        return {
            "architectures": [ARCHITECTURES[0]],
            "model_type": "llama",
            "num_hidden_layers": 1,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            **{name: getattr(self, name) for name in (*sizes, *rest)},
            **{name: True for name in flags if getattr(self, name)},
            "num_speculative_tokens": self.drafts,
            "eagle_config": {**ids, "use_aux_hidden_state": True},
            **({"made_for": self.made_for} if self.made_for else {}),
        }


def read(data: dict[str, Any], tensors: set[str], layers: int | None = None) -> Eagle3Config:
    """Return the configuration of a head with these tensors, their names as in SpecForge's files or speculators'.

    ``layers`` is how many the target has, if that is known.

    Raises:
        BadInput: something is missing, contradicts something else, or can mean several things.
    """
    body, nested = _part(data, "transformer_layer_config"), _part(data, "eagle_config")
    values = _merged(data, nested, body)
    if values.get("quantization") or values.get("quantization_config"):
        raise BadInput("the weights are quantized", "take the head without quantization")
    for key, allowed in ONLY.items():
        if values.get(key) is not None and values[key] not in allowed:
            raise BadInput(f"{key} is {values[key]!r}: only heads with {allowed[0]!r} are known here", FIX)
    if "sliding_attention" in (values.get("layer_types") or ()):
        raise BadInput("the layer attends to a sliding window, which no EAGLE-3 head has here", FIX)
    unknown = sorted(key for key, x in nested.items() if x not in (None, False) and key not in KNOWN_NESTED)
    if unknown:
        raise BadInput(f"eagle_config has {', '.join(unknown)}, which is not known here", FIX)
    sizes: dict[str, Any] = {name: _count(values, name) for name in COUNTS}
    rope = _rope(values)
    speculators = "speculators_model_type" in data
    config = Eagle3Config(
        **sizes,
        **rope,
        target_hidden_size=_count(values, "target_hidden_size", sizes["hidden_size"]),
        num_key_value_heads=_count(values, "num_key_value_heads", sizes["num_attention_heads"]),
        head_dim=_count(values, "head_dim", sizes["hidden_size"] // sizes["num_attention_heads"]),
        draft_vocab_size=_count(values, "draft_vocab_size", sizes["vocab_size"]),
        max_position_embeddings=_count(values, "max_position_embeddings", 4096),
        rms_norm_eps=_number(values, "rms_norm_eps", 1e-6),
        layer_ids=_layer_ids(values, layers, speculators=speculators),
        norm_before_residual=_flag(values, "norm_before_residual"),
        norm_before_fc=_flag(values, "norm_before_fc"),
        fc_norm=_flag(values, "fc_norm"),
        norm_feedback=_feedback(values, speculators=speculators),
        qk_norm="layers.0.self_attn.q_norm.weight" in tensors,
        own_embeddings="embed_tokens.weight" in tensors,
        drafts=_drafts(data),
        made_for=_made_for(values),
    )
    _check(config)
    return config


def _part(data: dict[str, Any], key: str) -> dict[str, Any]:
    part = data.get(key)
    if part is not None and not isinstance(part, dict):
        raise BadInput(f"{key} is {part!r}, not an object", FIX)
    return part or {}


def _merged(data: dict[str, Any], nested: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """Return all keys of the three levels; BadInput if two levels contradict each other."""
    values = dict(body)
    skipped = {"architectures", "model_type", "transformers_version", "dtype", "torch_dtype", "_name_or_path"}
    for level in (nested, data):
        for key, value in level.items():
            if value is None or key in skipped:
                continue
            if values.get(key) not in (None, value) and key in {
                *KNOWN_NESTED,
                "head_dim",
                "num_key_value_heads",
            }:
                raise BadInput(f"{key} is {value!r} at one level and {values[key]!r} at another", FIX)
            values[key] = value
    return values


def _layer_ids(values: dict[str, Any], layers: int | None, *, speculators: bool) -> tuple[int, ...] | None:
    """Return the layers whose outputs are read; None for the reference's choice.

    Two conventions are in use for the same choice: the layer's own number, or the boundary before the next layer.
    """
    ids, meaning = values.get(IDS), values.get(MEANING)
    if ids is None:
        return None
    if (
        not isinstance(ids, list)
        or not ids
        or any(type(i) is not int or i < 0 for i in ids)
        or len(set(ids)) < len(ids)
    ):
        raise BadInput(f"{IDS} is {ids!r}, not a list of different layers", FIX)
    if meaning is not None and meaning not in MEANINGS:
        raise BadInput(f"{MEANING} is {meaning!r}, not one of {', '.join(MEANINGS)}", FIX)
    if meaning is None and speculators:
        meaning = "boundaries"
    if meaning is None and layers is not None:
        default = list(Eagle3Config.default_layer_ids(layers))
        fits = [name for name, less in MEANINGS.items() if [i - less for i in ids] == default]
        meaning = fits[0] if fits else None
    if meaning is None:
        raise BadInput(
            f"{IDS} is {ids}, and nothing says whether these are layers' own numbers or boundaries before layers",
            f'add "{MEANING}": "outputs" to config.json if layer 0 is the first layer\'s output, else "boundaries"',
        )
    layers_read = tuple(i - MEANINGS[meaning] for i in ids)
    if min(layers_read) < 0:
        raise BadInput(f"{IDS} {ids} reaches the embeddings, which are not tapped here", FIX)
    return layers_read


def _feedback(values: dict[str, Any], *, speculators: bool) -> bool:
    """Return whether the layer's output is fed back normed."""
    if values.get(FEEDBACK) is not None:
        return _flag(values, FEEDBACK)
    if values.get("norm_output") is None:
        return False
    if not speculators:
        raise BadInput(
            f"norm_output is {values['norm_output']!r}: SpecForge changed what it means",
            f'replace it in config.json by "{FEEDBACK}": true if the head was trained to read its own normed output '
            "(EAGLE-3.1), else by false",
        )
    return _flag(values, "norm_output")


def _check(config: Eagle3Config) -> None:
    if config.norm_before_fc and config.fc_norm:
        raise BadInput("norm_before_fc and fc_norm exclude each other", FIX)
    if config.num_attention_heads % config.num_key_value_heads:
        raise BadInput(
            f"{config.num_attention_heads} heads are no multiple of {config.num_key_value_heads}", FIX
        )
    if config.draft_vocab_size > config.vocab_size:
        raise BadInput(f"draft_vocab_size is {config.draft_vocab_size}, with {config.vocab_size} tokens", FIX)


def _rope(values: dict[str, Any]) -> dict[str, Any]:
    scaling = values.get("rope_parameters") or values.get("rope_scaling")
    if scaling is not None and (
        not isinstance(scaling, dict) or any(isinstance(x, dict) for x in scaling.values())
    ):
        raise BadInput(f"the rope's parameters are {scaling!r}, not one object", FIX)
    base, within = values.get("rope_theta"), (scaling or {}).get("rope_theta")
    if None not in (base, within) and base != within:
        raise BadInput(f"rope_theta is {base}, and {within} among the rope's parameters", FIX)
    known = {"rope_theta": base if within is None else within}
    return {"rope_theta": _number(known, "rope_theta", 10_000.0), "rope_scaling": scaling}


def _drafts(data: dict[str, Any]) -> int:
    """Return how many tokens a chain may have: what the checkpoint proposes, within bounds."""
    methods = _part(data, "speculators_config").get("proposal_methods")
    first = methods[0] if isinstance(methods, list) and methods and isinstance(methods[0], dict) else {}
    count = data.get("num_speculative_tokens", first.get("speculative_tokens"))
    return min(count, MOST_DRAFTS) if type(count) is int and count >= 1 else DRAFTS


def _made_for(values: dict[str, Any]) -> dict[str, str] | None:
    made_for = values.get("made_for")
    if made_for is None:
        return None
    if not isinstance(made_for, dict) or not all(isinstance(x, str) for x in made_for.values()):
        raise BadInput(f"made_for is {made_for!r}, not an object of strings", FIX)
    return made_for


def _count(values: dict[str, Any], name: str, default: int | None = None) -> int:
    value = values.get(name)
    if value is None and default is not None:
        return default
    if type(value) is not int or value < 1:
        raise BadInput(f"{name} is {value!r}, not a whole number of at least 1", FIX)
    return value


def _number(values: dict[str, Any], name: str, default: float) -> float:
    value = values.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise BadInput(f"{name} is {value!r}, not a number above 0", FIX)
    return float(value)


def _flag(values: dict[str, Any], name: str) -> bool:
    value = values.get(name)
    if value not in (None, True, False):
        raise BadInput(f"{name} is {value!r}, not true or false", FIX)
    return bool(value)
