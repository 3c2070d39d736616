"""The server's description of itself: models, health and statistics."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bridge.common import host
from engine.checkpoints import files, hub, settings
from engine.errors import EngineError
from engine.models import catalogue, registry
from engine.models.catalogue import RAW, least_boundary
from engine.serve.backend import Model
from engine.serve.errors import ApiError
from engine.serve.server import Server
from engine.serve.settings import drafter_of


def models(server: Server) -> dict[str, Any]:
    """Return the answer to ``GET /v1/models``."""
    return {"object": "list", "data": [entry(server, name) for name in server.names]}


def model(server: Server, name: str) -> dict[str, Any]:
    """Return the entry of a model or of one of its channels; ApiError 404 if there is none."""
    channel = None if name in server.names else server.channel(name)
    if channel is not None and channel.boundary >= least_boundary(server.names[channel.short], channel.cache):
        shown = entry(server, channel.short)
        shown["x_kakeya"] |= {"cache": channel.cache, "boundary": channel.boundary}
        return {**shown, "id": name}
    if name not in server.names:
        raise ApiError(404, f"There is no model {name[:100]!r} here.", param="model", code="model_not_found")
    return entry(server, name)


def health(server: Server) -> dict[str, Any]:
    """Return the answer to ``GET /health``: 503 if no request can be served, with the reason."""
    engine, state = server.engine, server.engine.health()
    listed = server.settings.listed  # may be absent
    reason = state.trouble
    if reason is None and not state.loading and state.unloadable.keys() >= {*server.names.values()}:
        reason = f"no model can be loaded: {next(iter(state.unloadable.values()))}"
    missing = [
        name
        for name, reference in server.names.items()
        if reference not in (*listed, *engine.models)
        and not availability(reference, server.settings.draft)["available"]
    ]
    degraded = state.broken or missing
    return {
        "status": "failed" if reason else "loading" if state.loading else "degraded" if degraded else "ok",
        "reason": reason,
        "loading": state.loading,
        "broken": state.broken,
        "missing": missing,
        "backend": engine.name,
    }


def stats(server: Server) -> dict[str, Any]:
    """Return the answer to ``GET /v1/kakeya/stats``."""
    engine, memory = server.engine, server.engine.memory()
    loaded = list(engine.models.values())
    return {
        "version": host.version("kakeya-bridge"),
        "uptime_seconds": round(time.time() - server.started, 1),
        "active": len(engine.active),
        "waiting": engine.waiting,
        "cache_bytes": memory.caches,
        "process_bytes": host.process_bytes(),
        **memory.device,
        "memory_budget": server.settings.memory_budget,
        "models": {each.name: {"weight_bytes": each.nbytes, "loaded": each.loaded} for each in loaded},
        **engine.stats(),
    }


def entry(server: Server, name: str) -> dict[str, Any]:
    """Return the entry of a model in ``/v1/models``."""
    reference = server.names[name]
    resident = server.engine.models.get(reference)
    about: dict[str, Any] = {
        "loaded": resident is not None,
        "cache": server.settings.cache,
        "boundary": max(server.settings.boundary, least_boundary(reference, server.settings.cache)),
        "draft": server.settings.draft,
        **catalogued(name, reference, resident, server.engine.takes),
        **availability(reference, server.settings.draft),
        **({"lacks": [*server.engine.lacks]} if server.engine.lacks else {}),
    }
    if resident is not None:
        about |= {
            "sampling": dict(resident.sampling),
            "available": True,
            "context": resident.context,
            "dflash_available": resident.drafted,
        }
    created = resident.loaded if resident else int(server.started)
    return {"id": name, "object": "model", "created": created, "owned_by": "kakeya", "x_kakeya": about}


def catalogued(
    name: str,
    reference: str,
    resident: Model | None = None,
    takes: Callable[[str], bool] = lambda _: True,
) -> dict[str, Any]:
    """Return a model's channels with their published figures. Models without a name must be loaded for more.

    ``takes`` says whether the backend has the caches of a spec.
    """
    known = catalogue.entry(reference)
    offered = catalogue.channels(name, reference, resident.caches if resident else None)
    channels = {spec: channel for spec, channel in offered.items() if takes(spec)}
    specs, measured = [*channels], known.measured if known else {}
    published = {spec: (spec, least_boundary(reference, spec)) for spec in specs}
    figures = {channels[spec]: measured[at] for spec, at in published.items() if at in measured}
    return {
        "channels": [*channels.values()],
        "default_channel": channels.get(catalogue.DEFAULT, next(iter(channels.values()), None)),
        "advanced": [channels[spec] for spec in specs if spec == catalogue.ADVANCED],
        "unmeasured": [channels[spec] for spec in specs if spec != RAW and channels[spec] not in figures],
        "perplexity": figures,
        "least_boundary": known.boundary if known else 0,
    }


def availability(reference: str, draft: str) -> dict[str, Any]:
    """Return which parts of a model are on this machine's disk. Downloads nothing."""
    try:
        parts = {role: at for role, _, at in registry.find(reference, drafter_of(draft)).parts()}
    except EngineError:
        return {
            "available": False,
            "dflash_draft_repo": None,
            "dflash_available": False,
            "sampling": None,
        }
    drafter = parts.get("draft")
    known = catalogue.entry(reference)
    here = _on_disk(parts["target"])
    return {
        "available": here,
        "sampling": settings.sampling(hub.folder_of(parts["target"], download=False)) if here else None,
        "dflash_draft_repo": drafter if drafter is None or not Path(drafter).is_dir() else Path(drafter).name,
        "dflash_available": here and drafter is not None and _on_disk(drafter),
        "thinking": not (known is not None and known.thinks and drafter is not None),
    }


def _on_disk(reference: str) -> bool:
    try:
        files.weight_files(hub.folder_of(reference, download=False))
    except EngineError:
        return False
    return True
