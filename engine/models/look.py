"""Can a pair be loaded from what lies on this machine? Each model is looked at by itself, and nothing is downloaded."""

import time
from pathlib import Path
from typing import Any

from engine import environment
from engine.errors import EngineError
from engine.models import files, hub, registry
from engine.models.fit import check_fit, refuse_drafter


def look(model: str | None, draft: str | None, *, build: bool) -> list[dict[str, Any]]:
    """Return an entry for each model that was named: ``role``, ``reference``, ``ok``, ``error``, ``remedy``.

    Args:
        model: the target, as :func:`engine.models.load` takes it; None to look at a drafter alone.
        draft: the drafter; None for no drafter.
        build: load the weights too; else only the files are looked at, without MLX.
    """
    environment.set_offline()
    found, config = [], None
    if model is not None:
        target = _try("target", model, lambda: _target(model, build=build))
        config = target.pop("config", None)
        found.append(target)
    if draft is not None:
        entry = _try("draft", draft, lambda: _draft(model or draft, draft, config, build=build))
        entry.pop("config", None)
        found.append(entry)
    return found


def _try(role: str, reference: str, use: Any) -> dict[str, Any]:
    start = time.perf_counter()
    entry: dict[str, Any] = {"role": role, "reference": reference, "ok": False, "error": "", "remedy": ""}
    try:
        entry |= {"config": use(), "ok": True}
    except EngineError as error:
        entry |= {"error": error.message, "remedy": error.remedy}
    except Exception as error:  # noqa: BLE001 - whatever a damaged model does to a library is the finding
        entry |= {"error": f"{reference} cannot be loaded: {type(error).__name__}: {error}"}
    return entry | {"seconds": round(time.perf_counter() - start, 3)}


def _target(model: str, *, build: bool) -> dict[str, Any]:
    config = _files(registry.find(model, False).target)
    refuse_drafter(config)
    if build:
        from engine.models import load

        load(model, False)
    return config


def _draft(model: str, draft: str, target: dict[str, Any] | None, *, build: bool) -> dict[str, Any]:
    reference = registry.find(model, draft).draft
    if reference is None:
        raise EngineError(f"{draft} has no drafter", "name a folder or a hub id that is one")
    config = _files(reference)
    if target is not None:
        check_fit(config, target)
    if build:
        from engine.dflash import load_draft

        load_draft(_folder(reference))
    return config


def _files(reference: str) -> dict[str, Any]:
    folder = _folder(reference)
    config = files.read_config(folder)
    files.weight_files(folder)
    return config


def _folder(reference: str) -> Path:
    """Return a model's folder; of a hub id that was not downloaded say how to."""
    if hub.local(reference).is_dir() or not hub.HUB_ID.fullmatch(reference):
        return hub.folder_of(reference)
    try:
        return hub.folder_of(reference)
    except EngineError as error:
        home = environment.get("HF_HOME") or "~/.cache/huggingface"
        message = f"{reference} is not downloaded: the hub's cache at {home} does not hold it"
        raise EngineError(message, f"hf download {reference}") from error
