"""Speculative decoding with DFlash drafters: block diffusion heads that read the target's hidden layers."""

from engine.dflash.drafter.model import Drafter
from engine.dflash.drafter.weights import load_draft
from engine.dflash.loop import stream_generate
from engine.dflash.step import Stats, Step
from engine.dflash.target.taps import Tapped

__all__ = ["Drafter", "Stats", "Step", "Tapped", "load_draft", "stream_generate"]
