"""Runs a request's steps in two trees, in turn, and writes the report that compares them."""

import math
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from bridge import gate
from bridge.bus import wire
from bridge.bus.wire import State
from bridge.common import strict_json
from bridge.errors import ManifestError
from bridge.manifest import format_time
from bridge.presets.compare import Compare
from bridge.reports import SCHEMA_VERSION
from bridge.reports.claims import derive_claims
from bridge.reports.claims.compare import AGAIN, ARMS, BASELINE, CANDIDATE, Slot, schedule
from bridge.reports.digests import canonical
from bridge.reports.kinds import COMPARE
from bridge.reports.own.pointer import value_at
from bridge.reports.parts import HUGE
from bridge.system.git import Git
from runner.admit.admission import Admitted
from runner.job.arms import Arms
from runner.job.command import Ended
from runner.job.logs import LogSink
from runner.parts import Machine
from runner.serve.answer import Outcome
from runner.serve.lease import Lease
from runner.serve.steps.step_runner import Failure, StepRunner

# How much of a run's output is searched for its number, from the end.
_TAIL_BYTES = 64 * 1024
_LINE_BYTES, _LINE_DEPTH = 16 * 1024, 16
_WHOSE = {CANDIDATE: "the candidate", BASELINE: "the baseline", AGAIN: "the baseline's second copy"}

# A measured run shorter than this is not disturbed by heartbeats, pushed logs, and looks for a cancellation.
_QUIET_S = 10.0

Row = dict[str, Any]


class Comparison:
    """A job that measures the preset's last step in each arm, after it prepared the arms with the other steps."""

    def __init__(
        self, git: Git, machine: Machine, lease: Lease, admitted: Admitted, outcome: Outcome, steps: StepRunner,
        arms: Arms, compare: Compare,
    ) -> None:  # fmt: skip
        self._git = git
        self._machine = machine
        self._lease = lease
        self._admitted = admitted
        self._outcome = outcome
        self._steps = steps
        self._arms = arms
        self._compare = compare

    def run(self) -> None:
        """Run all steps until one fails, and add the report to the outcome's files if none does."""
        began, load = time.monotonic(), os.getloadavg()
        before = {}
        for arm in ARMS:
            self._arms.activate(arm)
            self._steps.set_up_home()
            before[arm] = self._steps.find_left_files()
        *preparing, measured = enumerate(self._admitted.commands)
        for i, argv in preparing:
            if self._run_slots(i, argv, [Slot(0, n, arm) for n, arm in enumerate(ARMS)]) is None:
                return
        rows = self._run_slots(*measured, schedule(self._compare.rounds), is_measured=True)
        if rows is None:
            return
        for arm in ARMS:
            self._arms.activate(arm)
            if lack := self._steps.lack_of_files(before[arm]):
                state, code, message = lack
                self._steps.end((state, code, f"{message}, in the tree of {_WHOSE[arm]}"))
                return
        report = self._report(rows, time.monotonic() - began, [*load, *os.getloadavg()])
        data = canonical(report)
        self._outcome.files |= {wire.COMPARISON: data, wire.COMPARISON_REPORT: data}

    def _run_slots(
        self, i: int, argv: list[str], slots: Iterable[Slot], *, is_measured: bool = False
    ) -> list[Row] | None:
        """Run one step in several arms, with one log. Returns a row for each measured run; None if one failed."""
        rows: list[Row] = []
        log, whole = self._steps.open_log(), None
        for slot in slots:
            self._arms.activate(slot.arm)
            where = f"in the tree of {_WHOSE[slot.arm]}" + (f", round {slot.round}" if slot.round else "")
            output = _Output(log, f"--- {where} ---\n")
            ended, stopped = self._steps.run_step(i, argv, output, _QUIET_S if is_measured else 0.0)
            whole = _added(whole, ended)
            failure = None if stopped else self._steps.failure(ended, i)
            if is_measured and not (stopped or failure):
                value = self._value(ended, output)
                failure = self._lack(i) if value is None else None
                rows += [] if value is None else [_row(slot, value)]
            if stopped or failure:
                self._steps.note(i, argv, whole, log)
                if stopped:
                    raise stopped
                if failure:
                    state, code, message = failure
                    self._steps.end((state, code, f"{message}, {where}"))
                return None
        if whole:
            self._steps.note(i, argv, whole, log)
        return rows

    def _value(self, ended: Ended, output: "_Output") -> float | None:
        if self._compare.measure == "printed":
            return output.number_at(self._compare.pointer or "/")
        value = ended.wall_s if self._compare.measure == "wall" else ended.processor_s
        return value if value > 0 else None

    def _lack(self, i: int) -> Failure:
        if self._compare.measure != "printed":
            return State.FAILED, "no_sample", f"step {i} took no measurable time"
        number = f"a JSON object that has a positive number at {self._compare.pointer}"
        return State.FAILED, "no_sample", f"step {i} printed no line with {number}"

    def _report(self, rows: list[Row], seconds: float, load: list[float]) -> Row:
        lease, git, admitted = self._lease, self._git, self._admitted
        trees = {CANDIDATE: str(admitted.workload), BASELINE: str(admitted.against)}
        report = {
            "schema_version": SCHEMA_VERSION,
            "kind": COMPARE,
            "created_at": format_time(datetime.now(UTC)),
            "seconds": seconds,
            "run": {"id": gate.run_id(lease.branch, lease.request, lease.token)},
            "host": self._machine.facts,
            "load": load,
            "config": {
                "preset": admitted.preset.name,
                **self._compare.model_dump(exclude_none=True),
                **{
                    arm: {"commit": oid, "tree": git.text("rev-parse", f"{oid}^{{tree}}")}
                    for arm, oid in trees.items()
                },
            },
            "rows": rows,
        }
        return {**report, "claims": derive_claims(report)}


class _Output:
    """Passes the output of one run on to the step's log, and keeps the end of the output."""

    def __init__(self, log: LogSink, title: str) -> None:
        self._log = log
        self._tail = bytearray()
        log.write(title.encode())

    def write(self, data: bytes) -> None:
        self._log.write(data)
        self._tail += data
        del self._tail[:-_TAIL_BYTES]

    def close(self) -> None:
        if self._tail and not self._tail.endswith(b"\n"):
            self._log.write(b"\n")
        self._log.close()

    def number_at(self, pointer: str) -> float | None:
        """Return the positive number in the last line that is a JSON object; None if there is none."""
        for line in reversed(bytes(self._tail).split(b"\n")):
            if not line.strip().startswith(b"{"):
                continue
            try:
                value = value_at(
                    strict_json.loads(line, max_bytes=_LINE_BYTES, max_depth=_LINE_DEPTH), pointer
                )
            except ManifestError:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                return None
            return float(value) if math.isfinite(value) and 0 < value < HUGE else None
        return None


def _row(slot: Slot, value: float) -> Row:
    row = {"round": slot.round, "position": slot.position, "arm": slot.arm, "value": value}
    return {**row, "warmup": True} if slot.warmup else row


def _added(whole: Ended | None, ended: Ended) -> Ended:
    """Return all runs of a step as one run, which ended as the last of them did."""
    if whole is None:
        return ended
    peaks = {name: max(ended.peaks.get(name, 0), peak) for name, peak in whole.peaks.items()}
    memory = max(whole.max_rss_bytes or 0, ended.max_rss_bytes or 0) or None
    return replace(
        ended,
        seconds=round(whole.seconds + ended.seconds, 3),
        max_rss_bytes=memory,
        peaks={**ended.peaks, **peaks},
    )
