"""The registry of pairs, for listing, and suggestions for unknown names."""

from typing import Any

from engine.checkpoints import hub
from engine.checkpoints.published import ALONE, BUNDLED, PUBLISHED, WHEELS
from engine.models import catalogue, registry

CHANNEL = "e8-q38"


def pairs() -> list[dict[str, Any]]:
    """Return all named pairs: their parts, whether they are on this machine, and how to get them.

    ``here`` says whether target and drafter are on this machine; ``get`` is the commands that bring what is
    missing, none for bundled pairs. ``channel`` is the pair's name in channel form,
    ``<name>@<lattice>-q<range>[-b<boundary>]``.
    """
    return [
        *map(_bundled, BUNDLED),
        *map(_fetched, WHEELS),
        *map(_published, (*PUBLISHED, *ALONE)),
    ]


def _entry(
    name: str, source: str, target: str, draft: str | None, get: list[str], *, here: bool
) -> dict[str, Any]:
    known = catalogue.entry(name) if source == "hub" else None
    boundary = f"-b{known.boundary}" if known and known.boundary else ""
    return {
        "name": name, "source": source, "target": target, "draft": draft, "here": here, "get": get,
        "channel": f"{name}@{CHANNEL}{boundary}",
    }  # fmt: skip


def _bundled(name: str) -> dict[str, Any]:
    return _entry(name, "bundled", name, name, [], here=registry.is_bundled_here(name))


def _fetched(name: str) -> dict[str, Any]:
    here = registry.is_fetched(name)
    draft = name if (registry.fetched(name) / "draft").is_dir() else None
    return _entry(name, "index", name, draft, [] if here else [f"kakeya-engine models get {name}"], here=here)


def _published(name: str) -> dict[str, Any]:
    target, draft = PUBLISHED[name] if name in PUBLISHED else (ALONE[name], None)
    missing = [id_ for id_ in (target, draft) if id_ is not None and not hub.is_here(id_)]
    return _entry(name, "hub", target, draft, [f"hf download {id_}" for id_ in missing], here=not missing)
