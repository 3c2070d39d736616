"""Watches a running command: pushes heartbeats with its output, and ends it when it is cancelled or told to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum

from bridge.bus.wire import State
from bridge.errors import InfrastructureError
from runner.bus.bus import Pushed
from runner.context import RunnerContext
from runner.job.command import Command
from runner.serve.lease import Lease

_TICK_S = 0.1
# Fetching the branch takes processor time that the job should have.
_LOOK_S = 0.3
# How often the status file is updated during a long job.
_NOTE_S = 5.0
# The time between two pieces of log grows with the run time: it is this share of it, and at most this many
# seconds. So a day of steady output stays below the number of commits that readers look through.
_SHARE = 1 / 200
LONGEST_PAUSE_S = 5.0
# At least this many heartbeats are pushed per lease, even if the push budget is used up.
_PER_LEASE = 3


class Halt(Enum):
    """Why a job does not run to its end."""

    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    FENCED = "fenced"
    STOPPING = "stopping"
    # This runner cannot run the request after all, but another one may.
    HANDED_ON = "handed_on"


class Halted(Exception):  # noqa: N818 - an end from outside, no fault
    """The request was stopped from outside between two of its steps."""

    def __init__(self, halt: Halt) -> None:
        super().__init__(halt.value)
        self.halt = halt


def attendant(
    context: RunnerContext, lease: Lease, doing: str = "files of Git LFS are being fetched"
) -> Callable[[], None]:
    """Return a function that keeps the claim alive while no step runs, and raises Halted when the request must end."""
    shortest, _ = context.policy.bus.poll
    between_beats = context.policy.bus.lease_s / 3
    between_looks = min(max(shortest, _LOOK_S), between_beats)
    last_beat = last_look = time.monotonic()

    def attend() -> None:
        nonlocal last_beat, last_look
        context.pulse.beat()
        if context.stop.is_set() and context.policy.on_stop == "hand_back":
            raise Halted(Halt.STOPPING)
        now = time.monotonic()
        if now - last_beat >= between_beats:
            last_beat = now
            # Neither a bus that is out of reach nor a full disk ends the request.
            with suppress(InfrastructureError, OSError):
                if lease.advance(State.RUNNING, detail=doing) is Pushed.STALE:
                    last_look = -math.inf
        if now - last_look >= between_looks:
            last_look = time.monotonic()
            if halt := _look(lease):
                raise Halted(halt)

    return attend


def attend(
    context: RunnerContext, lease: Lease, command: Command, heartbeat: Heartbeat, step: int
) -> Halt | None:
    """Wait until a command ends. Returns why it has to be stopped from outside, or None if it ended by itself.

    Raises:
        InfrastructureError: this process no longer has its state folder.
    """
    shortest, _ = context.policy.bus.poll
    between_looks = max(shortest, _LOOK_S)
    last_look = last_note = last_obeyed = time.monotonic()
    context.status_file.steps(step)
    while command.poll(_TICK_S) is None:
        context.pulse.beat()
        if context.stop.is_set() and context.policy.on_stop == "hand_back":
            return Halt.STOPPING
        if heartbeat.maybe(step) is Pushed.STALE:
            last_look = 0.0
        now = time.monotonic()
        if now - last_obeyed >= _LOOK_S:
            # No order stops a running job, but the status file shows that the order was received.
            last_obeyed = now
            context.health.check_lock()
            context.obey()
        if now - last_note >= _NOTE_S:
            last_note = now
            context.status_file.steps(step)
        if now - last_look >= between_looks:
            last_look = now
            halt = _look(lease)
            if halt:
                return halt
    return None


def _look(lease: Lease) -> Halt | None:
    """Return why the job has to end if somebody pushed to the branch, else None."""
    try:
        view = lease.moved()
    except InfrastructureError:
        return None
    if view is None:
        return None
    if lease.is_fenced(view):
        return Halt.FENCED
    stands = lease.stands(view) and view.cancel == lease.view.cancel
    lease.build_on(view)
    if stands:
        return None
    return Halt.CANCELLED if view.cancel and view.cancel.request == lease.request else Halt.SUPERSEDED


class Heartbeat:
    """The heartbeats of one job."""

    def __init__(self, context: RunnerContext, lease: Lease) -> None:
        self._budget = context.bus.budget
        self._longest = context.policy.bus.lease_s / _PER_LEASE
        self._lease = lease
        self._began = self._last = time.monotonic()
        # The running step that the branch shows.
        self._known: int | None = None

    def maybe(self, step: int) -> Pushed | None:
        """Push a heartbeat if it is time. Returns the push's result, or None if no push was tried."""
        now = time.monotonic()
        if now - self._last < self._pause(now, news=self._lease.log.waits or step != self._known):
            return None
        self._last = now
        try:
            pushed = self._lease.beat(step)
        except (InfrastructureError, OSError):
            # A full disk does not end the job: there may be room again before the job ends.
            return Pushed.FAILED
        if pushed is Pushed.DONE:
            self._known = step
        return pushed

    def _pause(self, now: float, *, news: bool) -> float:
        if not news or not self._budget.spare():
            return self._longest
        growing = min((now - self._began) * _SHARE, LONGEST_PAUSE_S)
        return min(max(self._budget.interval_s, growing), self._longest)
