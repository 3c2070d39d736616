"""Loads a drafter of any kind."""

from importlib import import_module
from pathlib import Path
from typing import Any

from engine.checkpoints import files, hub
from engine.dflash.drafter.protocol import Drafter
from engine.dflash.kinds import DFLASH, KINDS, kind_of
from engine.errors import BadInput
from engine.mx import mx


def load_draft(
    source: str | Path, dtype: mx.Dtype | None = None, *, kind: str | None = None, layers: int | None = None
) -> Drafter:
    """Load a drafter of any kind from a folder, which is tried first, or from the hub by ``owner/name``.

    Args:
        source: the drafter's folder or hub id; for an MTP head also its target's.
        dtype: in which the weights are held, None keeps the file's. On a CPU float32 is the fast one.
        kind: a key of ``KINDS``; None takes what the configuration says.
        layers: how many layers the target has. Some EAGLE-3 heads can be read only if that is known.

    Raises:
        BadInput: there is no such drafter, its kind or its configuration is unknown or ambiguous, or its weights are
            damaged or do not fit it.
    """
    folder = hub.folder_of(source)
    data = files.read_config(folder)
    module, _, function = KINDS[kind or kind_of(data) or _unknown(data)].loader.partition(":")
    loaded: Drafter = getattr(import_module(module), function)(folder, data, dtype, layers)
    return loaded


def _unknown(data: dict[str, Any]) -> str:
    """Return DFlash, whose loader says what is missing; BadInput for a drafter of a kind that is not known."""
    names = [str(name) for name in (data.get("architectures") or ()) if "eagle" in str(name).lower()]
    speculators = data.get("speculators_model_type")
    if names or speculators is not None:
        titles = ", ".join(kind.title for kind in KINDS.values())
        raise BadInput(
            f"the drafter is {', '.join(names) or speculators!r}, none of the kinds that are known here: {titles}",
            "take a drafter of one of these kinds",
        )
    return DFLASH
