"""Speculative decoding with DFlash drafters: block diffusion heads that read the target's hidden layers."""

from engine.dflash.drafter import Drafter
from engine.dflash.loop import stream_generate
from engine.dflash.step import Stats, Step
from engine.dflash.taps import Tapped
from engine.dflash.weights import load_draft

__all__ = ["Drafter", "Stats", "Step", "Tapped", "load_draft", "stream_generate"]
