"""Resolves a reference to a folder: a local folder directly, a hub id through the Hugging Face cache."""

import re
from pathlib import Path
from typing import Any

from bridge.common import environment
from engine.checkpoints import formats
from engine.checkpoints.published import nearest_name
from engine.errors import BadInput, OutOfReach

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
# Only configuration, tensors and tokenizer are downloaded; no Python code and no pickles.
WANTED = ["*.json", "model*.safetensors", "tokenizer.model", "*.tiktoken", "*.txt", "*.jinja"]


def folder_of(reference: str | Path, *, download: bool = True) -> Path:
    """Return the folder that holds a model.

    Args:
        reference: a local folder, which is tried first, or (unless it is a ``Path``) a hub id ``owner/name``.
        download: fetch files that the cache of huggingface_hub lacks, unless ``HF_HUB_OFFLINE`` is set. False only
            reads the cache and never opens a connection.

    Raises:
        BadInput: there is neither such a folder nor such a repository, there is no network and the cache lacks it,
            or the repository requires a login.
    """
    folder = local(reference)
    try:
        if folder.is_dir():
            return folder
        if folder.exists():
            instead, fix = formats.advice(folder.parent, "")
            if folder.suffix in (".gguf", ".bin", ".npz", ".pt", ".pth", ".onnx"):
                raise BadInput(f"{folder} is not a folder{instead}", fix)
            raise BadInput(f"{folder} is not a folder", "give the folder with config.json in it")
    except OSError as error:
        raise BadInput(
            f"{folder} cannot be looked at: {error.strerror}", "give a folder that you may read"
        ) from error
    if isinstance(reference, Path) or not HUB_ID.fullmatch(reference):
        raise BadInput(f"there is no folder {folder}", _instead(str(reference)))
    return _snapshot(reference, download=download)


def _instead(name: str) -> str:
    advice = _question(name) or "give a folder with a model, or a hub id;"
    return f"{advice} kakeya-engine models lists the names"


def _question(name: str) -> str:
    near = nearest_name(name)
    return f"did you mean {near}?" if near else ""


def is_hub_id(reference: str) -> bool:
    """Return whether a reference is not a local folder, but may be a repository of the hub."""
    return HUB_ID.fullmatch(reference) is not None and not local(reference).exists()


def is_here(hub_id: str) -> bool:
    """Return whether the hub's cache on this machine has a repository, judging by its configuration file."""
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(hub_id, "config.json"), str)


def is_offline() -> bool:
    """Return whether the user told huggingface_hub to open no connection."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def local(reference: str | Path) -> Path:
    """Return a reference as a path, if it may be one. A leading ``~`` is expanded if that home folder exists."""
    try:
        return Path(reference).expanduser()
    except RuntimeError:
        return Path(reference)


def _snapshot(hub_id: str, *, download: bool) -> Path:
    import huggingface_hub
    from huggingface_hub import errors

    only: dict[str, Any] = {} if download else {"local_files_only": True}
    command, question = f"hf download {hub_id}", _question(hub_id)
    try:
        return Path(huggingface_hub.snapshot_download(hub_id, allow_patterns=WANTED, **only))
    except errors.GatedRepoError as error:
        raise BadInput(
            f"{hub_id} is gated", "accept its licence on the hub, then log in: hf auth login"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise BadInput(
            f"there is neither a folder nor a hub repository {hub_id}", _instead(hub_id)
        ) from error
    except errors.IncompleteSnapshotError as error:
        raise OutOfReach(f"the download of {hub_id} was interrupted", command) from error
    except errors.LocalEntryNotFoundError as error:
        if not download:
            cache = environment.get("HF_HUB_CACHE") or environment.get("HF_HOME") or "~/.cache/huggingface"
            missing = f"{hub_id} is not downloaded: the hub's cache at {cache} does not hold it"
            raise BadInput("; ".join(filter(None, (missing, question))), command) from error
        fix = f"download it with: {command}"
        raise OutOfReach(
            f"there is no folder {hub_id}, it is not in the hub's cache, and the hub is out of reach",
            f"{question} Otherwise {fix}" if question else fix,
        ) from error
    except (OSError, ValueError) as error:
        kind = OutOfReach if isinstance(error, OSError) else BadInput
        raise kind(
            f"{hub_id} cannot be fetched: {' '.join(str(error).split())}",
            f"check the network and the id, then run: {command}",
        ) from error
