"""Drafters on disk: ``config.json`` and safetensors, read strictly and written so that others read them.

Every tensor is checked by name and shape against the configuration before any is loaded, from the files'
headers alone. Nothing is ever unpickled.
"""

import json
import tempfile
from pathlib import Path
from typing import NamedTuple

from engine.dflash.config import DraftConfig
from engine.dflash.drafter import Drafter
from engine.errors import BadInput
from engine.models import files, hub
from engine.mx import mx, tree

CONFIG, WEIGHTS = "config.json", "model.safetensors"
KINDS = ("F32", "F16", "BF16")  # as safetensors writes them
DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}
MISFIT = "take config.json and the weights from the same checkpoint"


class Stored(NamedTuple):
    """A tensor of a safetensors file."""

    file: Path
    shape: tuple[int, ...]


def load_draft(source: str | Path, dtype: mx.Dtype | None = None) -> Drafter:
    """Load a drafter from a folder, or from the hub by ``owner/name``.

    Args:
        source: a folder is tried first.
        dtype: what to hold the weights in; None keeps the file's. On a CPU float32 is the fast one.

    Raises:
        BadInput: there is no such drafter, its configuration is not one (see :mod:`engine.dflash.config`), or
            its weights are damaged or do not fit it.
    """
    folder = hub.folder_of(source)
    drafter = Drafter(DraftConfig.from_json(files.read_config(folder), str(folder / CONFIG)))
    stored = _stored(folder)
    _check(drafter, stored, folder)
    weights: dict[str, mx.array] = {}
    for file in sorted({tensor.file for tensor in stored.values()}):
        weights.update(mx.load(str(file)))
    if dtype is not None:
        weights = {name: x.astype(dtype) for name, x in weights.items()}
    drafter.load_weights(list(weights.items()))
    mx.eval(drafter.parameters())
    drafter.fused()
    return drafter.eval()


def save_draft(drafter: Drafter, folder: str | Path, dtype: str = "bfloat16") -> None:
    """Write ``config.json`` and ``model.safetensors``; each is replaced whole or not at all.

    Raises:
        BadInput: no such dtype, weights that are not plain matrices, or a folder that cannot be written.
    """
    if dtype not in DTYPES:
        raise BadInput(f"no dtype {dtype!r}", ", ".join(DTYPES))
    weights = dict(tree.tree_flatten(drafter.parameters()))
    expected = {name: x.shape for name, x in tree.tree_flatten(Drafter(drafter.config).parameters())}
    if {name: x.shape for name, x in weights.items()} != expected:
        raise BadInput("the drafter's weights are not those of its configuration", "save it unquantized")
    weights = {name: x.astype(DTYPES[dtype]) for name, x in weights.items()}
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as name:
            part = Path(name)
            mx.save_safetensors(str(part / WEIGHTS), weights, {"format": "mlx"})
            config = {**drafter.config.to_json(), "dtype": dtype}
            (part / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
            for file in (WEIGHTS, CONFIG):
                (part / file).replace(folder / file)
    except OSError as error:
        raise BadInput(f"cannot write {folder}: {error.strerror}") from error


def _stored(folder: Path) -> dict[str, Stored]:
    """Return the tensors of all weight files of a folder, from their headers."""
    found: dict[str, Stored] = {}
    for file in files.weight_files(folder):
        for name, entry in files.read_header(file).items():
            if name in found:
                raise BadInput(f"{name} is in {found[name].file} and in {file.name}", MISFIT)
            if entry["dtype"] not in KINDS:
                raise BadInput(f"{file}: {name} is {entry['dtype']}, not one of {', '.join(KINDS)}", MISFIT)
            found[name] = Stored(file, tuple(entry["shape"]))
    return found


def _check(drafter: Drafter, stored: dict[str, Stored], folder: Path) -> None:
    expected = {name: x.shape for name, x in tree.tree_flatten(drafter.parameters())}
    if missing := sorted(expected.keys() - stored.keys()):
        raise BadInput(f"{folder}: {_some(missing)} missing from the weights", MISFIT)
    if extra := sorted(stored.keys() - expected.keys()):
        raise BadInput(f"{stored[extra[0]].file}: {_some(extra)} is of no use to this drafter", MISFIT)
    for name, shape in expected.items():
        if stored[name].shape != shape:
            has, wants = list(stored[name].shape), list(shape)
            raise BadInput(f"{stored[name].file}: {name} is {has}, {CONFIG} says {wants}", MISFIT)


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
