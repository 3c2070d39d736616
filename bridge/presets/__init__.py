"""Presets: the named, typed, bounded jobs that can be requested."""

from bridge.presets.load import Presets, find_preset, load_presets
from bridge.presets.model import Checked, Inputs, Limits, Preset, did_you_mean, split_params
from bridge.presets.sources import find_presets

__all__ = [
    "Checked", "Inputs", "Limits", "Preset", "Presets", "did_you_mean", "find_preset", "find_presets", "load_presets",
    "split_params",
]  # fmt: skip
