"""A model's files, read without building the model: configuration, tensor headers, digests.

The layout of a safetensors file, from its published specification: a little-endian unsigned 64-bit length,
that many bytes of JSON (tensor name to dtype, shape and byte range), then the bytes of all tensors.
"""

import hashlib
import json
from math import prod
from pathlib import Path
from typing import Any

from engine.checkpoints import formats
from engine.errors import BadInput

INDEX = "model.safetensors.index.json"
# A folder's tokenizer is made from, and identified by, the first of these files that exists.
VOCABULARIES = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "vocab.json")
MOST_HEADER = 100 << 20
LFS = b"version https://git-lfs"
FLOATS = ("F16", "BF16", "F32")  # types that loading may convert
AGAIN = "download or copy it again"
# Bytes of an element, by the type's name in the format. Types of less than a byte are not listed.
BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 8),
}


def read_config(folder: Path) -> dict[str, Any]:
    """Return ``config.json`` of a model folder.

    Raises:
        BadInput: the file is absent, not a JSON object, or without ``model_type``.
    """
    path = folder / "config.json"
    if not path.is_file():
        contents, fix = formats.advice(folder, "give the folder of a model, with its weights beside it")
        raise BadInput(f"{folder} has no config.json{contents}", fix)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}", AGAIN) from error
    if isinstance(config, dict) and isinstance(config.get("speculators_model_type"), str):
        config.setdefault("model_type", config["speculators_model_type"])  # speculators writes no other
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise BadInput(f"{path} names no model_type", "it has to be the configuration of a model")
    return config


def text_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a configuration that describes the language model; multimodal models have other parts."""
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else config


def weight_files(folder: Path) -> list[Path]:
    """Return a model's safetensors files, after checking that each is complete.

    Loading decides whether they hold all tensors. An index is read for one purpose: to name files that are not there.
    It does not count if it names none of the files, or if the tensors of its missing files are in others, as after a
    conversion.

    Raises:
        BadInput: there is none, one in the index is missing, or one is truncated or not a safetensors file.
    """
    files = sorted(folder.glob("model*.safetensors"))
    present = {name for path in files for name in read_header(path)}
    index = _index(folder)
    there = {path.name for path in files}
    lacking = {tensor: file for tensor, file in index.items() if file not in there and tensor not in present}
    if lacking and (not files or there.intersection(index.values())):
        names = ", ".join(sorted(set(lacking.values())))
        raise BadInput(f"{folder} lacks {names}, which {INDEX} names for {min(lacking)}", AGAIN)
    if not files:
        contents, fix = formats.advice(folder, AGAIN)
        raise BadInput(f"{folder} holds no model*.safetensors{contents}", fix)
    return files


def _index(folder: Path) -> dict[str, str]:
    """Return the file of each tensor, by the folder's index; nothing without a readable index."""
    try:
        entries = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].items()
        return {str(tensor): str(file) for tensor, file in entries}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def vocabulary_file(folder: Path) -> Path:
    """Return the file that defines the vocabulary.

    Raises:
        BadInput: there is none.
    """
    for path in (folder / name for name in VOCABULARIES):
        if path.is_file():
            return path
    raise BadInput(
        f"{folder} has no tokenizer", f"one of {', '.join(VOCABULARIES)} belongs beside the weights"
    )


def read_header(path: Path) -> dict[str, dict[str, Any]]:
    """Return the tensors of a safetensors file: ``{name: {"dtype", "shape", "data_offsets"}}``.

    Raises:
        BadInput: it is a Git LFS pointer, truncated, longer than its header says, no safetensors file, or unreadable.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(8)
            length = int.from_bytes(head, "little")
            text = file.read(length) if length <= MOST_HEADER else b""
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}", AGAIN) from error
    if head and LFS.startswith(head):
        raise BadInput(f"{path} is a Git LFS pointer, not the weights", "git lfs pull")
    if len(head) < 8 or length > MOST_HEADER:  # noqa: PLR2004 - the length's own size
        raise BadInput(f"{path} is not a safetensors file, or is cut short", AGAIN)
    if len(text) < length:
        raise BadInput(f"{path} is cut short within its header", AGAIN)
    try:
        tensors: dict[str, dict[str, Any]] = json.loads(text)
        tensors.pop("__metadata__", None)
        end = 8 + len(text) + max((entry["data_offsets"][1] for entry in tensors.values()), default=0)
        wrong = [name for name, entry in tensors.items() if not _is_whole(entry)]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise BadInput(f"{path} has a damaged header", AGAIN) from error
    if size != end:
        raise BadInput(
            f"{path} is cut short: {size} bytes of {end}" if size < end else f"{path} is damaged", AGAIN
        )
    if wrong:
        raise BadInput(f"{path} is damaged: {wrong[0]} is not as long as its shape says", AGAIN)
    return tensors


def format_of(path: Path) -> str | None:
    """Return the format that a safetensors file names for itself, such as ``mlx`` or ``pt``; None without one."""
    read_header(path)
    with path.open("rb") as file:
        about = json.loads(file.read(int.from_bytes(file.read(8), "little"))).get("__metadata__")
    name = about.get("format") if isinstance(about, dict) else None
    return name if isinstance(name, str) else None


def _is_whole(entry: dict[str, Any]) -> bool:
    """Return whether a tensor has as many bytes as its shape and type need, or may have, if the type is unknown."""
    start, end = entry["data_offsets"]
    each = BYTES.get(entry["dtype"])
    return 0 <= start <= end and (each is None or end - start == prod(entry["shape"]) * each)


def loaded_bytes(folder: Path, size: int | None) -> int:
    """Return how many bytes a model's tensors take in memory.

    Loading converts floating-point numbers to ``size`` bytes each; with None, it keeps them as they are stored.
    """
    entries = (entry for path in weight_files(folder) for entry in read_header(path).values())
    return sum(
        prod(entry["shape"]) * size
        if size is not None and entry["dtype"] in FLOATS
        else entry["data_offsets"][1] - entry["data_offsets"][0]
        for entry in entries
    )


def stored_dtypes(paths: list[Path]) -> list[str]:
    """Return the element types in which tensors are stored, as safetensors writes them: ``["F16"]``."""
    return sorted({entry["dtype"] for path in paths for entry in read_header(path).values()})


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
