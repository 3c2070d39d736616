"""Restorers on disk: ``config.json`` and ``model.safetensors``, made for one target and refused for any other."""

import json
import tempfile
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from engine import provenance
from engine.errors import BadInput
from engine.models import files
from engine.mx import mx, tree
from engine.restore.restorer import Restorer, RestorerConfig

KIND = "kakeya-restorer"
CONFIG, WEIGHTS = "config.json", "model.safetensors"
MISFIT = "take config.json and the weights from the same restorer"
AGAIN = "train one for this target: kakeya-engine train restorer"


def target_digest(folder: Path) -> str:
    """Return ``sha256:...`` of a target's weights, by which a restorer knows it."""
    return provenance.digest(files.weight_files(folder), folder)


def save_restorer(restorer: Restorer, folder: Path) -> None:
    """Write a restorer in half precision; its files are replaced whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: x.astype(mx.float16) for name, x in tree.tree_flatten(restorer.parameters())}
    config = {"model_type": KIND, **asdict(restorer.config), "dtype": "float16"}
    with tempfile.TemporaryDirectory(dir=folder) as name:
        part = Path(name)
        mx.save_safetensors(str(part / WEIGHTS), weights, {"format": "mlx"})
        (part / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        for file in (WEIGHTS, CONFIG):
            (part / file).replace(folder / file)


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
    found = target_digest(target)
    if config.target != found:
        raise BadInput(
            f"the restorer in {folder} was made for another target: its weights are {config.target[:19]}, "
            f"those of {target} are {found[:19]}",
            AGAIN,
        )
    restorer = Restorer(config)
    (path,) = _weights(folder)
    _check(restorer, files.read_header(path), folder)
    weights = mx.load(str(path))
    restorer.load_weights([(name, x.astype(dtype or x.dtype)) for name, x in weights.items()])
    mx.eval(restorer.parameters())
    return restorer.eval()


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
    given = {name: data[name] for name in wanted if name in data}
    odd = [name for name, value in given.items() if name != "target" and not _is_numbers(name, value)]
    if odd:
        raise BadInput(f"{folder / CONFIG}: {odd[0]} is {given[odd[0]]!r}", MISFIT)
    try:
        return RestorerConfig(**{name: tuple(x) if isinstance(x, list) else x for name, x in given.items()})
    except BadInput as error:
        raise BadInput(f"{folder / CONFIG}: {error.message}", error.remedy) from error


def _is_numbers(name: str, value: Any) -> bool:
    listed = name in {"layers", "key_sizes", "value_sizes", "dilations"}
    items = value if listed and isinstance(value, list) else [] if listed else [value]
    return bool(items) and all(type(item) is int for item in items)


def _weights(folder: Path) -> list[Path]:
    found = files.weight_files(folder)
    if [path.name for path in found] != [WEIGHTS]:
        raise BadInput(f"{folder} holds {', '.join(path.name for path in found)}, not {WEIGHTS}", MISFIT)
    return found


def _check(restorer: Restorer, stored: dict[str, dict[str, Any]], folder: Path) -> None:
    expected = {name: list(x.shape) for name, x in tree.tree_flatten(restorer.parameters())}
    if missing := sorted(expected.keys() - stored.keys()):
        raise BadInput(f"{folder}: {missing[0]} is missing from the weights", MISFIT)
    if extra := sorted(stored.keys() - expected.keys()):
        raise BadInput(f"{folder}: {extra[0]} is not a tensor of this restorer", MISFIT)
    for name, shape in expected.items():
        if stored[name]["shape"] != shape:
            raise BadInput(f"{folder}: {name} is {stored[name]['shape']}, not {shape}", MISFIT)
        if stored[name]["dtype"] not in {"F16", "BF16", "F32"}:
            raise BadInput(f"{folder}: {name} is {stored[name]['dtype']}, not floating-point", MISFIT)
