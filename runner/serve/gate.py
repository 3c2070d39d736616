"""Runs the gate on the host: applies the installed checks to the reports that the job wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bridge import gate
from bridge.bus.wire import Gate
from bridge.presets import Preset


def judge_reports(
    preset: Preset,
    reports: Mapping[str, bytes],
    run: gate.Voucher,
    attend: Callable[[], None],
    skipped: Sequence[str],
) -> Gate | None:
    """Return the gate's verdict on a job's reports, or None if the preset does not use the gate.

    ``skipped`` are the files that were not collected, each with the reason. While the gate judges, ``attend`` is called
    a few times a second. What it raises ends the judging.
    """
    if not preset.gated:
        return None
    judged = gate.judge(reports, preset.kinds, run, attend)
    left_out = [gate.violation("LEFT_OUT", each) for each in skipped]
    if not left_out:
        return judged
    violations = [*judged.violations, *left_out][: gate.MAX_VIOLATIONS]
    return judged.model_copy(update={"violations": violations, "verdict": gate.verdict(violations)})
