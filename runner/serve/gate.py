"""The gate where the reports were measured: the installed rules over the files that the job left."""

from __future__ import annotations

from collections.abc import Mapping

from bridge import evidence
from bridge.bus.wire import Gate
from bridge.evidence import Bound
from bridge.presets import Preset


def judge(preset: Preset, reports: Mapping[str, bytes], bound: Bound | None = None) -> Gate | None:
    """Return the gate's verdict on a job's reports, or None where the preset asks for none."""
    return evidence.judge(reports, preset.kinds, bound) if preset.gated else None
