"""The list of all pairs that have a name."""

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
    return [_pair(name) for name in (*BUNDLED, *WHEELS, *PUBLISHED, *ALONE)]


def _pair(name: str) -> dict[str, Any]:
    target, boundary = name, 0
    draft: str | None = name
    commands: list[str] = []
    if name in BUNDLED:
        source, here = "bundled", registry.is_bundled_here(name)
    elif name in WHEELS:
        source, here = "index", registry.is_fetched(name)
        draft = name if (registry.fetched(name) / "draft").is_dir() else None
        commands = [] if here else [f"kakeya-engine models get {name}"]
    else:
        source, known = "hub", catalogue.entry(name)
        target, draft = PUBLISHED[name] if name in PUBLISHED else (ALONE[name], None)
        commands = [f"hf download {id_}" for id_ in (target, draft) if id_ and not hub.is_here(id_)]
        here, boundary = not commands, known.boundary if known else 0
    channel = f"{name}@{CHANNEL}" + (f"-b{boundary}" if boundary else "")
    return {
        "name": name, "source": source, "target": target, "draft": draft, "here": here, "get": commands,
        "channel": channel,
    }  # fmt: skip
