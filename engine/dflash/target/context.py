"""Limits of a target: how many tokens it can read, and which token ids exist. All decoding loops use these limits."""

from collections.abc import Mapping, Sequence
from typing import Any

from engine.checkpoints import files
from engine.errors import BadInput
from engine.mx import mx, nn

# Configurations' names for the maximum length of prompt and answer together, the most frequent name first.
NAMES = (
    *("max_position_embeddings", "n_positions", "model_max_length", "max_sequence_length", "max_seq_length"),
    *("max_seq_len", "max_context_length", "context_length", "seq_length", "seq_len", "n_ctx", "ctx_len"),
)
POSITIONS = ("wpe",)  # mlx-lm's names for a table with a row for each position
EMBEDDINGS = ("embed_tokens", "wte", "embeddings", "embedding", "word_embeddings", "tok_embeddings")
_NOTED = "_kakeya_context"  # attribute of a loaded model


def note_context(target: nn.Module, config: Mapping[str, Any]) -> None:
    """Store the context length from a model's configuration in the model: mlx-lm drops names that it does not know."""
    setattr(target, _NOTED, _stated(files.text_config(dict(config))))


def context_of(target: nn.Module) -> int | None:
    """Return the maximum number of tokens of prompt and answer; None if neither configuration nor model has it."""
    arguments = _vars(getattr(target, "args", None))
    inner = {**arguments, **_vars(arguments.get("text_config"))}
    lengths = [getattr(target, _NOTED, None) or _stated(inner)]
    lengths += [module.weight.shape[0] for name, module in target.named_modules() if _last(name) in POSITIONS]
    return min((each for each in lengths if each is not None), default=None)


def tokens_of(target: nn.Module) -> int:
    """Return how many token ids a model has embeddings for."""
    rows = [
        int(module.weight.shape[0])
        for name, module in target.named_modules()
        if _last(name) in EMBEDDINGS and isinstance(module, nn.Embedding | nn.QuantizedEmbedding)
    ]
    return min(rows) if rows else logits_of(target)


def logits_of(target: nn.Module) -> int:
    """Return how many logits a model computes for a token. Nothing is evaluated."""
    return int(target(mx.zeros((1, 1), mx.int32)).shape[-1])


def check_context(target: nn.Module, name: str, tokens: int) -> None:
    """Raise BadInput for more tokens than the model's context allows."""
    most = context_of(target)
    if most is not None and tokens > most:
        raise BadInput(
            f"{tokens} tokens are more than the {most} that {name} can read", "ask for shorter prompts"
        )


def check_ids(target: nn.Module, ids: Sequence[int]) -> None:
    """Raise BadInput for token ids without an embedding: MLX would read past the table."""
    known = tokens_of(target)
    wrong = next((token for token in ids if not 0 <= token < known), None)
    if wrong is not None:
        raise BadInput(f"the model has no token {wrong}", f"its tokens are 0 to {known - 1}")


def room(target: nn.Module, tokens: int) -> int | None:
    """Return how many tokens fit after the ``tokens`` of caches and prompt; None if there is no limit.

    Raises:
        BadInput: no further token fits.
    """
    most = context_of(target)
    if most is not None and tokens >= most:
        raise BadInput(
            f"the prompt has {tokens} tokens, and the model reads {most} with the answer",
            "shorten the prompt",
        )
    return None if most is None else most - tokens


def _stated(fields: Mapping[str, Any]) -> int | None:
    return next((fields[name] for name in NAMES if type(fields.get(name)) is int and fields[name] > 0), None)


def _vars(arguments: Any) -> dict[str, Any]:
    if isinstance(arguments, dict):
        return arguments
    return dict(vars(arguments)) if hasattr(arguments, "__dict__") else {}


def _last(name: str) -> str:
    return name.rpartition(".")[2]
