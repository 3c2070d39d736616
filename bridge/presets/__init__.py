"""Presets: the named, typed, bounded jobs that can be requested."""

from bridge.presets.load import Presets, find_preset, load_presets
from bridge.presets.model import (
    ENV_LONGEST,
    ENV_VALUE,
    Checked,
    Inputs,
    Limits,
    Preset,
    Step,
    did_you_mean,
    split_params,
)

__all__ = [
    "ENV_LONGEST",
    "ENV_VALUE",
    "Checked",
    "Inputs",
    "Limits",
    "Preset",
    "Presets",
    "Step",
    "did_you_mean",
    "find_preset",
    "load_presets",
    "split_params",
]
