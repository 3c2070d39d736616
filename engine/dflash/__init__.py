"""Speculative decoding: DFlash drafters, EAGLE-3 and MTP heads, and prompt lookup."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.dflash.drafter.load import load_draft
    from engine.dflash.drafter.model import DFlashDrafter
    from engine.dflash.loop import stream_generate
    from engine.dflash.step import Stats, Step
    from engine.dflash.target.taps import Tapped

__all__ = ["DFlashDrafter", "Stats", "Step", "Tapped", "load_draft", "stream_generate"]

_MODULES = {
    "DFlashDrafter": "drafter.model",
    "Stats": "step",
    "Step": "step",
    "Tapped": "target.taps",
    "load_draft": "drafter.load",
    "stream_generate": "loop",
}


def __getattr__(name: str) -> Any:
    """Import what is used, and MLX with it, only when it is used: stops and text need none."""
    if name in _MODULES:
        return getattr(import_module(f"engine.dflash.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
