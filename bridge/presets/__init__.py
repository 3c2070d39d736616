"""Presets: the named, typed, bounded jobs that may be asked for."""

from __future__ import annotations

from bridge.presets.model import (
    ENV_LONGEST,
    ENV_VALUE,
    Inputs,
    Limits,
    Preset,
    Presets,
    did_you_mean,
    find_preset,
    load_presets,
)

__all__ = [
    "ENV_LONGEST",
    "ENV_VALUE",
    "Inputs",
    "Limits",
    "Preset",
    "Presets",
    "did_you_mean",
    "find_preset",
    "load_presets",
]
