"""The registry of pairs, to be listed; and what somebody may have meant who wrote another name."""

from difflib import get_close_matches
from typing import Any

from engine.checkpoints import hub
from engine.models import registry

CHANNEL = "e8-q38"


def pairs() -> list[dict[str, Any]]:
    """Return every pair that goes by a name: what it consists of, whether it is here, and how to get it.

    ``here`` says whether target and drafter are on this machine; ``get`` is the commands that bring what is
    missing, none for bundled pairs. ``channel`` is the pair's name in channel form, ``<name>@<lattice>-q<range>``.
    """
    return [_bundled(name) for name in registry.BUNDLED] + [_published(name) for name in registry.PUBLISHED]


def _bundled(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "source": "bundled",
        "target": name,
        "draft": name,
        "here": registry.is_bundled_here(name),
        "get": [],
        "channel": f"{name}@{CHANNEL}",
    }


def _published(name: str) -> dict[str, Any]:
    ids = registry.PUBLISHED[name]
    missing = [id_ for id_ in ids if not hub.is_here(id_)]
    return {
        "name": name,
        "source": "hub",
        "target": ids[0],
        "draft": ids[1],
        "here": not missing,
        "get": [f"hf download {id_}" for id_ in missing],
        "channel": f"{name}@{CHANNEL}",
    }


def meant(name: str) -> str | None:
    """Return the known name or hub id that is nearest to ``name``, None if none is near."""
    ids = [id_ for pair in registry.PUBLISHED.values() for id_ in pair]
    known = {each.casefold(): each for each in (*registry.BUNDLED, *registry.PUBLISHED, *ids)}
    cutoff = 0.9 if "/" in name else 0.75  # many hub ids are like each other
    near = get_close_matches(name.casefold(), known, n=1, cutoff=cutoff)
    return known[near[0]] if near and known[near[0]] != name else None
