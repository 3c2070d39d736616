"""The gate where the reports were measured: the installed rules over the files that the job left."""

from __future__ import annotations

import json
from collections.abc import Mapping

from bridge.evidence import check_reports
from bridge.presets import Preset
from bridge.wire import Gate


def judge(preset: Preset, reports: Mapping[str, bytes]) -> Gate | None:
    """Return the gate's verdict on a job's reports, or None where the preset asks for none."""
    if preset.gate == "none":
        return None
    return check_reports({path: _parse(data) for path, data in reports.items() if path.endswith(".json")})


def _parse(data: bytes) -> object:
    """Return a report, or None where it is not one JSON text with one meaning."""
    try:
        return json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(text: str) -> None:
    raise ValueError(text)
