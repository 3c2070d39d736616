"""Runs the gate on the host: applies the installed rules to the reports that the job wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bridge import evidence
from bridge.bus.wire import Gate
from bridge.evidence import Bound
from bridge.presets import Preset


def judge_reports(
    preset: Preset,
    reports: Mapping[str, bytes],
    bound: Bound | None = None,
    attend: Callable[[], None] | None = None,
) -> Gate | None:
    """Return the gate's verdict on a job's reports, or None if the preset does not use the gate.

    Meanwhile, ``attend`` is called a few times a second. What it raises ends the judging.
    """
    return evidence.judge(reports, preset.kinds, bound, attend) if preset.gated else None
