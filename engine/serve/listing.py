"""What the server tells of itself: its models, its health, its figures."""

import time
from typing import Any

from engine import host
from engine.mx import mx
from engine.serve.channels import Channel
from engine.serve.errors import ApiError
from engine.serve.server import Server

SUGGESTED = ("raw", "e8v@4.25", "e8@q38", "affine@4g64")


def models(server: Server) -> dict[str, Any]:
    """Return what ``GET /v1/models`` answers."""
    return {"object": "list", "data": [_entry(server, name) for name in server.names]}


def model(server: Server, name: str) -> dict[str, Any]:
    """Return one model's entry; ApiError 404 if there is none."""
    if name not in server.names:
        raise ApiError(404, f"There is no model {name[:100]!r} here.", param="model", code="model_not_found")
    return _entry(server, name)


def health(server: Server) -> dict[str, Any]:
    """Return what ``GET /health`` answers."""
    loading = server.engine.loading
    return {"status": "loading" if loading else "ok", "loading": loading, "backend": "mlx"}


def stats(server: Server) -> dict[str, Any]:
    """Return what ``GET /v1/kakeya/stats`` answers."""
    active = server.engine.active
    return {
        "version": host.version("kakeya-bridge"),
        "uptime_seconds": round(time.time() - server.started, 1),
        "active": len(active),
        "waiting": server.engine.waiting,
        "cache_bytes": sum(each.nbytes for each in active),
        "mlx_active_bytes": int(mx.get_active_memory()),
        "mlx_peak_bytes": int(mx.get_peak_memory()),
        "prefixes": server.engine.prefixes.stats() if server.engine.prefixes else None,
        "models": {
            each.name: {"weight_bytes": each.nbytes, "loaded": each.loaded}
            for each in server.engine.residents.values()
        },
    }


def _entry(server: Server, name: str) -> dict[str, Any]:
    resident = server.engine.residents.get(server.names[name])
    channels = [str(Channel(name, spec)) for spec in SUGGESTED]
    about: dict[str, Any] = {
        "loaded": resident is not None,
        "cache": server.settings.cache,
        "draft": server.settings.draft,
        "channels": channels,
    }
    if resident is not None:
        about |= {"context": resident.context, "dflash_available": resident.pair.draft is not None}
    created = resident.loaded if resident else int(server.started)
    return {"id": name, "object": "model", "created": created, "owned_by": "kakeya", "x_kakeya": about}
