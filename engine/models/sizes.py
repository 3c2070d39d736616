"""Sizes of models with a name, and whether this machine's memory holds them. Loads and downloads nothing."""

from pathlib import Path
from typing import Any

from bridge.common import host
from engine.checkpoints import hub
from engine.checkpoints.published import FOUR_BIT, SIZES, four_bit_name
from engine.errors import EngineError

SHARE = 0.75  # of the memory for weights: caches, drafters and the system need the rest


def most_weights() -> int:
    """Return how many bytes of weights this machine can use."""
    return int(SHARE * host.memory_bytes())


def facts_of(name: str, target: str | None) -> dict[str, Any]:
    """Return the size of a target's weights, whether they fit this machine, and the name of a smaller form.

    ``weight_bytes`` is the size on disk or, if the weights are not here (``estimated_size``), an estimate to two
    digits. It is None if nobody knows it, and so is ``fits``.
    """
    size = None if target is None else _on_disk(target)
    estimated = size is None and name in SIZES
    if estimated:
        size = int(SIZES[name] * 1e9)
    return {
        "weight_bytes": size,
        "estimated_size": estimated,
        "fits": None if size is None else size <= most_weights(),
        "four_bit": four_bit_name(name) if name in FOUR_BIT else None,
    }


def _on_disk(target: str) -> int | None:
    try:
        folder = hub.folder_of(target if hub.is_hub_id(target) else Path(target), download=False)
        return sum(path.stat().st_size for path in folder.glob("model*.safetensors")) or None
    except (EngineError, OSError):
        return None
