"""Loads a target and its tokenizer through mlx-lm, with a specific error for each fault of a folder."""

from importlib import util
from pathlib import Path
from typing import Any

from engine.checkpoints import files, formats, settings
from engine.dflash.target.context import note_context
from engine.errors import BadInput
from engine.lm import utils as lm_utils
from engine.models.fit import refuse_drafter
from engine.mx import DTYPES, mx, nn, on_cpu, tree

STORED = "stored"
# Embeddings are padded to a round number of rows: in published models, up to 2 % of them are unused.
MOST_UNUSED = 0.1
MOST_WITHOUT = 0.01  # the most tokens (such as one for images) in the tokenizer but not in the embeddings


def chosen_dtype(name: str | None) -> mx.Dtype | None:
    """Return the type to compute in for a name from ``DTYPES`` or ``stored``; None: the type of the files.

    Without a name, that is float32 on the CPU, where half types are slower, and the stored type elsewhere.
    """
    if name is None:
        return mx.float32 if on_cpu() else None
    if name == STORED:
        return None
    if name not in DTYPES:
        raise BadInput(f"no such type: {name}", f"one of {', '.join(DTYPES)}, {STORED}")
    return DTYPES[name]


def load_target(folder: Path, dtype: mx.Dtype | None) -> tuple[nn.Module, dict[str, Any]]:
    """Load an mlx-lm model strictly: the files must have each of its tensors, and nothing else.

    Returns the model, evaluated, and its configuration as mlx-lm completed it. Floating-point tensors become ``dtype``,
    or stay as stored if it is None.

    Raises:
        BadInput: a file is missing or truncated; mlx-lm does not know the architecture; it is a drafter and not a
            target; a tensor is missing, superfluous or has another shape; or the configuration is unusable.
    """
    config = files.read_config(folder)
    refuse_drafter(config)
    files.weight_files(folder)
    model, config = _built(folder, config)
    note_context(model, config)
    if dtype is not None:
        cast(model, dtype)
    mx.eval(model.parameters())
    return model, config


def rebuild(folder: Path, model: nn.Module) -> nn.Module:
    """Return another model object over the same arrays as ``model``, which was loaded from ``folder``."""
    other, _ = _built(folder, files.read_config(folder))
    other.update(model.parameters())
    return other


def _built(folder: Path, config: dict[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
    """Let mlx-lm build the model with its tensors still on disk."""
    try:
        loaded: tuple[nn.Module, dict[str, Any]] = lm_utils.load_model(folder, lazy=True)
    except Exception as error:
        kind, fix = config["model_type"], formats.advice_for_quantized(config, files.AGAIN)
        if not _known(kind):
            raise BadInput(
                f"mlx-lm does not know the architecture {kind!r} of {folder}",
                "another mlx-lm version may, or a converted model",
            ) from error
        if isinstance(error, ValueError) and "parameter" in str(error):
            raise BadInput(
                f"the tensors in {folder} are not those of its configuration: {_line(error)}", fix
            ) from error
        raise BadInput(
            f"mlx-lm cannot build {folder}: {type(error).__name__}: {_line(error)}", fix
        ) from error
    return loaded


def _known(kind: str) -> bool:
    name = lm_utils.MODEL_REMAPPING.get(kind, kind)
    return name.isidentifier() and util.find_spec(f"mlx_lm.models.{name}") is not None


def cast(model: nn.Module, dtype: mx.Dtype) -> None:
    """Cast floating-point tensors, except those that the architecture keeps in full precision."""
    keep = getattr(model, "cast_predicate", lambda _: True)

    def leaf_of(path: str, leaf: mx.array) -> mx.array:
        if not mx.issubdtype(leaf.dtype, mx.floating) or (dtype != mx.float32 and not keep(path)):
            return leaf
        return leaf.astype(dtype)

    model.update(tree.tree_map_with_path(leaf_of, model.parameters()))


def load_tokenizer(folder: Path, config: dict[str, Any]) -> Any:
    """Return mlx-lm's wrapper of the tokenizer in ``folder``. Code in the folder is never run.

    Raises:
        BadInput: the tokenizer is missing, cannot be read, or has another vocabulary.
    """
    path = files.vocabulary_file(folder)
    own = {"trust_remote_code": False, **settings.chat_template(folder)}
    try:
        tokenizer = lm_utils.load_tokenizer(folder, own, eos_token_ids=config.get("eos_token_id"))
    except Exception as error:
        raise BadInput(f"the tokenizer {path} cannot be read: {_line(error)}", files.AGAIN) from error
    rows = files.text_config(config).get("vocab_size")
    ids = max(tokenizer.get_vocab().values(), default=-1) + 1
    if rows is not None and not (1 - MOST_UNUSED) * rows <= ids <= (1 + MOST_WITHOUT) * rows:
        raise BadInput(
            f"the tokenizer {path} has {ids} tokens, and the model {rows}", "it is another model's tokenizer"
        )
    return tokenizer


def _line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")
