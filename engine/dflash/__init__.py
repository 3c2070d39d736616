"""Speculative decoding with DFlash drafters: block diffusion heads that read the target's hidden layers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.dflash.drafter.model import DFlashDrafter
    from engine.dflash.drafter.weights import load_draft
    from engine.dflash.loop import stream_generate
    from engine.dflash.step import Stats, Step
    from engine.dflash.target.taps import Tapped

__all__ = ["DFlashDrafter", "Stats", "Step", "Tapped", "load_draft", "stream_generate"]

_MODULES = {
    "DFlashDrafter": "drafter.model",
    "Stats": "step",
    "Step": "step",
    "Tapped": "target.taps",
    "load_draft": "drafter.weights",
    "stream_generate": "loop",
}


def __getattr__(name: str) -> Any:
    """Import what is used, and MLX with it, only when it is used: stops and text need none."""
    if name in _MODULES:
        return getattr(import_module(f"engine.dflash.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
