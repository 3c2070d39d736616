"""Runs the gate on the host: applies the installed rules to the reports that the job wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bridge import gate
from bridge.bus.wire import Gate
from bridge.presets import Preset


def judge_reports(
    preset: Preset,
    reports: Mapping[str, bytes],
    run: gate.Voucher = gate.NO_RUN,
    attend: Callable[[], None] | None = None,
) -> Gate | None:
    """Return the gate's verdict on a job's reports, or None if the preset does not use the gate.

    Meanwhile, ``attend`` is called a few times a second. What it raises ends the judging.
    """
    return gate.judge(reports, preset.kinds, run, attend) if preset.gated else None
