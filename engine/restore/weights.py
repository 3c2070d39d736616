"""Restorers on disk: ``config.json`` and ``model.safetensors``, made for one target and refused for any other."""

from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from engine.checkpoints import digests, files, tensors
from engine.checkpoints.tensors import CONFIG, MISFIT
from engine.errors import BadInput
from engine.mx import mx, tree
from engine.restore.restorer import Restorer, RestorerConfig

KIND = "kakeya-restorer"
AGAIN = "train one for this target: kakeya-engine train restorer"


def target_digest(folder: Path) -> str:
    """Return ``sha256:...`` of a target's weights, by which a restorer knows it."""
    return digests.digest(files.weight_files(folder), folder)


def save_restorer(restorer: Restorer, folder: Path) -> None:
    """Write a restorer in half precision; its files are replaced whole or not at all."""
    weights = {name: x.astype(mx.float16) for name, x in tree.tree_flatten(restorer.parameters())}
    tensors.save(folder, {"model_type": KIND, **asdict(restorer.config), "dtype": "float16"}, weights)


def load_restorer(folder: Path, target: Path, dtype: mx.Dtype | None = None) -> Restorer:
    """Load a restorer strictly: each of its tensors is in the file, in its shape, and nothing else.

    Args:
        folder: ``config.json`` and ``model.safetensors``.
        target: the folder of the target, whose weights have to be those that it was made for.
        dtype: what to hold the weights in; None keeps the file's.

    Raises:
        BadInput: no restorer, one for another target, or weights that are damaged or do not fit.
    """
    config = read_config(folder)
    digest = target_digest(target)
    if config.target != digest:
        raise BadInput(
            f"the restorer in {folder} was made for another target: its weights are {config.target[:19]}, "
            f"those of {target} are {digest[:19]}",
            AGAIN,
        )
    restorer = Restorer(config)
    tensors.load_into(restorer, folder, dtype)
    restorer.eval()
    return restorer


def read_config(folder: Path) -> RestorerConfig:
    """Return a restorer's configuration.

    Raises:
        BadInput: none there, another model's, or one that lacks something or says what cannot be.
    """
    data = files.read_config(folder)
    if data["model_type"] != KIND:
        raise BadInput(f"{folder} holds a {data['model_type']}, not a restorer", AGAIN)
    wanted = {field.name: field for field in fields(RestorerConfig)}
    missing = [name for name, field in wanted.items() if field.default is MISSING and name not in data]
    if missing or not isinstance(data.get("target"), str):
        raise BadInput(f"{folder / CONFIG} lacks {', '.join(missing) or 'target'}", MISFIT)
    settings = {name: data[name] for name in wanted if name in data}
    unsound = [name for name, value in settings.items() if name != "target" and not _is_numbers(name, value)]
    if unsound:
        raise BadInput(f"{folder / CONFIG}: {unsound[0]} is {settings[unsound[0]]!r}", MISFIT)
    try:
        values: dict[str, Any] = {
            name: tuple(x) if isinstance(x, list) else x for name, x in settings.items()
        }
        return RestorerConfig(**values)
    except BadInput as error:
        raise BadInput(f"{folder / CONFIG}: {error.message}", error.fix) from error


def _is_numbers(name: str, value: Any) -> bool:
    listed = name in {"layers", "dilations"}
    items = value if listed and isinstance(value, list) else [] if listed else [value]
    return bool(items) and all(type(item) is int for item in items)
