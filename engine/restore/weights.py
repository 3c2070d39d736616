"""Restorers on disk: ``config.json`` and ``model.safetensors``. Each is loaded only for the models it was made for."""

from collections.abc import Callable
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, TypeVar, cast

from engine.checkpoints import digests, files, tensors
from engine.checkpoints.tensors import CONFIG, MISFIT
from engine.errors import BadInput
from engine.mx import mx, tree
from engine.restore.restorer import Restorer, RestorerConfig

AGAIN = "train one for this target: kakeya-engine train restorer"
FITS: dict[Any, Callable[[Any], bool]] = {
    int: lambda x: type(x) is int,
    str: lambda x: isinstance(x, str),
    tuple[int, ...]: lambda x: isinstance(x, list | tuple) and {type(item) for item in x} == {int},
}
Config = TypeVar("Config")


def target_digest(folder: Path) -> str:
    """Return ``sha256:...`` of a target's weights, which identifies it for restorers."""
    return digests.digest(files.weight_files(folder), folder)


def save_restorer(restorer: Any, folder: Path) -> None:
    """Write a restorer of either kind in half precision; its files are replaced atomically."""
    weights = {name: x.astype(mx.float16) for name, x in tree.tree_flatten(restorer.parameters())}
    config = {"model_type": restorer.kind, **asdict(restorer.config), "dtype": "float16"}
    tensors.save(folder, config, weights)


def load_restorer(folder: Path, target: Path, dtype: mx.Dtype | None = None) -> Restorer:
    """Load a restorer strictly, in ``dtype`` (None keeps the file's): the file must have exactly its tensors.

    The weights in the folder ``target`` have to be those that it was made for. BadInput if they are not, or if there is
    no restorer, or one that is damaged or does not fit.
    """
    config = read_restorer_config(folder, RestorerConfig, Restorer.kind, AGAIN)
    check_digest(folder, "target", config.target, target_digest(target), AGAIN)
    restorer = Restorer(config)
    tensors.load_into(restorer, folder, dtype)
    restorer.eval()
    return restorer


def check_digest(folder: Path, role: str, wanted: str, digest: str, fix: str) -> None:
    """Raise BadInput if a restorer was made for another model."""
    if wanted != digest:
        message = f"the restorer in {folder} was made for another {role}"
        raise BadInput(f"{message}: {wanted[:19]}, not {digest[:19]}", fix)


def read_restorer_config(folder: Path, config_type: type[Config], kind: str, fix: str) -> Config:
    """Return a restorer's configuration, a dataclass with fields of the types in ``FITS``; BadInput if invalid."""
    data = files.read_config(folder)
    if data["model_type"] != kind:
        raise BadInput(f"{folder} holds a {data['model_type']}, not a restorer", fix)
    values: dict[str, Any] = {}
    for field in fields(cast("Any", config_type)):
        value = data.get(field.name, field.default)
        if value in (None, MISSING):
            raise BadInput(f"{folder / CONFIG} lacks {field.name}", MISFIT)
        if not FITS[field.type](value):
            raise BadInput(f"{folder / CONFIG}: {field.name} is {value!r}", MISFIT)
        values[field.name] = tuple(value) if isinstance(value, list) else value
    try:
        return config_type(**values)
    except BadInput as error:
        raise BadInput(f"{folder / CONFIG}: {error.message}", error.fix) from error
