"""Models by name: the bundled pairs, published ones, folders and hub ids."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.checkpoints import files, hub
from engine.models import fit, registry
from engine.models.catalogue import pairs

if TYPE_CHECKING:
    from engine.models.pair import Pair, load

__all__ = ["Pair", "files", "fit", "hub", "load", "pairs", "registry"]


def __getattr__(name: str) -> Any:
    """Import the loading functions, and MLX with them, only when needed: checking names and files works without."""
    if name in ("Pair", "load"):
        return getattr(import_module("engine.models.pair"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
