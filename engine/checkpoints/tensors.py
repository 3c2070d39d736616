"""The tensors of a drafter or restorer on disk: checks them before reading, and replaces files atomically."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from bridge.common.whole_files import atomic_write
from engine.checkpoints import files
from engine.errors import BadInput
from engine.mx import load, mx, nn, tree

CONFIG, WEIGHTS = "config.json", "model.safetensors"
KINDS = ("F32", "F16", "BF16")  # as safetensors writes them
MISFIT = "take config.json and the weights from the same checkpoint"


def load_into(module: nn.Module, folder: Path, dtype: mx.Dtype | None, unused: Collection[str] = ()) -> None:
    """Fill a module that was made from the folder's configuration, and evaluate it.

    Every tensor is checked by name, shape and type, from the files' headers, before any is loaded. Nothing is
    ever unpickled. Weights are held in ``dtype``, None keeps the file's. ``unused`` are tensors that the files may hold
    beside the module's, and that are left there.

    Raises:
        BadInput: weights are missing, superfluous, of another shape, not floating-point numbers, or damaged.
    """
    paths = files.weight_files(folder)
    _check({name: list(x.shape) for name, x in tree.tree_flatten(module.parameters())}, paths, folder, unused)
    weights = [
        (name, x.astype(dtype or x.dtype))
        for path in paths
        for name, x in load(path).items()
        if name not in unused
    ]
    module.load_weights(weights)
    mx.eval(module.parameters())


def save(folder: Path, config: dict[str, Any], tensors: dict[str, mx.array]) -> None:
    """Write ``config.json`` and ``model.safetensors``.

    Raises:
        BadInput: the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / CONFIG) as about, atomic_write(folder / WEIGHTS) as weights:
            mx.save_safetensors(str(weights), tensors, {"format": "mlx"})
            about.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(
            f"cannot write {folder}: {error.strerror}", "choose a folder that can be written"
        ) from error


def _check(expected: dict[str, list[int]], paths: list[Path], folder: Path, unused: Collection[str]) -> None:
    file_of: dict[str, Path] = {}
    for path in paths:
        for name, entry in files.read_header(path).items():
            if name in file_of:
                raise BadInput(f"{name} is in {file_of[name]} and in {path.name}", MISFIT)
            file_of[name] = path
            if name in expected and entry["dtype"] not in KINDS:
                raise BadInput(f"{path}: {name} is {entry['dtype']}, not one of {', '.join(KINDS)}", MISFIT)
            if expected.get(name, entry["shape"]) != entry["shape"]:
                raise BadInput(f"{path}: {name} is {entry['shape']}, {CONFIG} says {expected[name]}", MISFIT)
    if missing := sorted(expected.keys() - file_of.keys()):
        raise BadInput(f"the weights in {folder} lack {_some(missing)}", MISFIT)
    if extra := sorted(file_of.keys() - expected.keys() - set(unused)):
        raise BadInput(f"{file_of[extra[0]]} holds {_some(extra)}, for which {CONFIG} has no use", MISFIT)


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
