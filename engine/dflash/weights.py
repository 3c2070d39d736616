"""Drafters on disk: ``config.json`` and safetensors, read strictly and written so that others read them.

Every tensor is checked by name and shape against the configuration before any is loaded, from the files'
headers alone. Nothing else in the folder is opened, and nothing is ever unpickled.
"""

import json
import struct
import tempfile
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from engine.dflash.config import DraftConfig
from engine.dflash.drafter import Drafter
from engine.errors import BadInput
from engine.mx import mx, tree

CONFIG, WEIGHTS = "config.json", "model.safetensors"
PATTERNS = ["*.json", "*.safetensors"]  # what is asked of the hub
BYTES = {"F32": 4, "F16": 2, "BF16": 2}
DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}
DAMAGED = "fetch the drafter again, the file is damaged or incomplete"
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
    folder = _folder(source)
    config = DraftConfig.from_json(_json(folder / CONFIG), str(folder / CONFIG))
    drafter = Drafter(config)
    stored = read_headers(folder)
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


def read_headers(folder: Path) -> dict[str, Stored]:
    """Return the tensors of all safetensors files of a folder, from their headers.

    Raises:
        BadInput: there is none, one is damaged or cut short, or two hold the same tensor.
    """
    found: dict[str, Stored] = {}
    for file in sorted(folder.glob("*.safetensors")):
        for name, tensor in _header(file).items():
            if name in found:
                raise BadInput(f"{name} is in {found[name].file} and in {file.name}", MISFIT)
            found[name] = tensor
    if not found:
        raise BadInput(f"there are no weights in {folder}", f"a folder with {CONFIG} and .safetensors files")
    return found


def _header(file: Path) -> dict[str, Stored]:
    """Read a header as the format defines it: its length in 8 bytes, then JSON, then the data."""
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            size = file.stat().st_size - 8 - length
            if size < 0:
                raise BadInput(f"{file} ends within its header", DAMAGED)
            header = json.loads(stream.read(length))
            tensors = {name: tensor for name, tensor in header.items() if name != "__metadata__"}
            for name, tensor in tensors.items():
                _check_extent(file, name, tensor, size)
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror}") from error
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{file} is no safetensors file", DAMAGED) from error
    return {name: Stored(file, tuple(tensor["shape"])) for name, tensor in tensors.items()}


def _check_extent(file: Path, name: str, tensor: dict[str, Any], size: int) -> None:
    start, stop = tensor["data_offsets"]
    if tensor["dtype"] not in BYTES:
        raise BadInput(f"{file}: {name} is {tensor['dtype']}, not one of {', '.join(BYTES)}", MISFIT)
    if not 0 <= start <= stop <= size or stop - start != prod(tensor["shape"]) * BYTES[tensor["dtype"]]:
        raise BadInput(f"{file} is cut short: {name} is not whole", DAMAGED)


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


def _folder(source: str | Path) -> Path:
    if Path(source).is_dir():
        return Path(source)
    if isinstance(source, Path) or source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise BadInput(f"there is no folder {source}", "a drafter's folder, or owner/name on the hub")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, allow_patterns=PATTERNS))
    except Exception as error:
        raise BadInput(
            f"{source} cannot be had from the hub: {error}", "check the name and the network"
        ) from error


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except FileNotFoundError as error:
        raise BadInput(
            f"there is no {file}", f"a drafter's folder has {CONFIG} beside its weights"
        ) from error
    except (OSError, ValueError) as error:
        raise BadInput(f"{file} cannot be read: {error}", DAMAGED) from error
