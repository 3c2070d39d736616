"""Initializes a drafter: a new one with a shape for its target, or an existing one for further training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.checkpoints.files import text_config
from engine.dflash.config import DraftConfig
from engine.dflash.drafter.load import load_draft
from engine.dflash.drafter.model import DFlashDrafter
from engine.dflash.target.embeddings import TargetEmbeddings
from engine.errors import BadInput
from engine.mx import mx, nn
from engine.tokens import Tokenizer

TAPS = 3
NEEDED = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")


def draft_config(
    target: dict[str, Any],
    mask_id: int,
    *,
    layers: int = 2,
    block: int = 8,
    taps: Sequence[int] | None = None,
    made_for: dict[str, str] | None = None,
) -> DraftConfig:
    """Return the shape of a drafter for a target with the configuration ``target``.

    Heads, positions and vocabulary are the target's; its MLP is twice the hidden size. Taps are spread from the second
    layer to the last but one. ``made_for`` names the target that the drafter is bound to. BadInput if the target has
    no attention whose shape the drafter could use.
    """
    config = text_config(target)
    if missing := ", ".join(name for name in NEEDED if name not in config):
        message = f"a DFlash drafter cannot be made for a {config['model_type']}: its configuration"
        raise BadInput(f"{message} has no {missing}", "choose a target with attention layers")
    count = config["num_hidden_layers"]
    if taps is None:
        taps = sorted({round(1 + i * (count - 3) / (TAPS - 1)) for i in range(TAPS)} & set(range(count)))
    heads = config["num_attention_heads"]
    rope = config.get("rope_parameters") or {}
    return DraftConfig(
        hidden_size=config["hidden_size"],
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=config.get("num_key_value_heads", heads),
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        intermediate_size=2 * config["hidden_size"],
        vocab_size=config["vocab_size"],
        rms_norm_eps=config.get("rms_norm_eps", 1e-6),
        rope_theta=float(config.get("rope_theta") or rope.get("rope_theta") or 10_000.0),
        max_position_embeddings=config.get("max_position_embeddings", 4096),
        num_target_layers=count,
        target_layer_ids=tuple(taps),
        mask_token_id=mask_id,
        block_size=block,
        final_logit_softcapping=config.get("final_logit_softcapping"),
        made_for=made_for,
    )


def mask_id_of(tokenizer: Tokenizer) -> int:
    """Return the id that stands for "not known yet": the tokenizer's mask, padding or unknown token, or 0."""
    names = ("mask_token_id", "pad_token_id", "unk_token_id")
    tokens = (getattr(tokenizer, name, None) for name in names)
    return int(next((token for token in tokens if token is not None), 0))


def drafter(config: DraftConfig, target: nn.Module, seed: int = 0) -> DFlashDrafter:
    """Return a drafter to train, which starts with small random matrices and the target's final norm."""
    mx.random.seed(seed)
    draft = DFlashDrafter(config)
    TargetEmbeddings.of(target).check(config)
    norm = getattr(getattr(target, "model", None), "norm", None)
    if norm is not None and norm.weight.shape == draft.norm.weight.shape:
        offset = 1.0 if type(norm).__module__.endswith(("gemma2", "gemma3_text")) else 0.0
        draft.norm.weight = norm.weight.astype(mx.float32) + offset
    draft.set_dtype(mx.float32)
    mx.eval(draft.parameters())
    return draft


def from_folder(source: str | Path, target: nn.Module) -> DFlashDrafter:
    """Return the drafter in a folder, in float32, to train it further; BadInput if that is impossible here."""
    draft = load_draft(source, mx.float32)
    if not isinstance(draft, DFlashDrafter):
        raise BadInput(
            f"{source} is no DFlash drafter", "go on from a DFlash drafter, or train one from nothing"
        )
    if draft.config.is_dflash2 or draft.config.is_dspark:
        kind = "DSpark drafter: its heads"
        if draft.config.is_dflash2:
            kind = "DFlash2 drafter: its convolutions and its selector"
        fix = "go on from a DFlash drafter, or train one from nothing"
        raise BadInput(f"{source} is a {kind} cannot be trained here", fix)
    TargetEmbeddings.of(target).check(draft.config)
    return draft
