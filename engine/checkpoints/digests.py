"""Digests of files, by which a report names the weights and the sources that it measured."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from engine.checkpoints import files


def digest(paths: Iterable[Path], folder: Path) -> str:
    """Return ``sha256:...`` of the lines ``<sha256> <path>`` of files below a folder, sorted by path."""
    lines = sorted((path.relative_to(folder).as_posix(), files.sha256(path)) for path in paths)
    text = "".join(f"{value} {name}\n" for name, value in lines)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def model(
    role: str, name: str, folder: Path, dtype: str, quantization: str | None = None
) -> dict[str, object]:
    """Return an entry of a report's ``models`` for a folder in the format of the hub.

    ``name`` is the bundled name, hub id or path by which it was asked for, ``dtype`` that of the weights as they are
    used.
    """
    config = [path for path in [folder / "config.json"] if path.exists()]
    tokenizer = [path for path in folder.iterdir() if path.is_file() and _is_tokenizer(path.name)]
    return {
        "role": role,
        "id": name,
        "weights": digest(folder.glob("*.safetensors"), folder),
        "config": digest(config, folder),
        "tokenizer": digest(tokenizer, folder) if tokenizer else None,
        "dtype": dtype,
        "quantization": quantization,
    }


def _is_tokenizer(name: str) -> bool:
    return name.startswith(("tokenizer", "special_tokens", "vocab", "merges", "chat_template"))
