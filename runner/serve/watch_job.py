"""Watching a command while it runs: heartbeats with its output, the branch, and this runner's own end."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum

from bridge.bus.wire import State
from bridge.errors import InfrastructureError
from runner.bus.bus import Pushed
from runner.job.command import Command
from runner.serve.heartbeat import Heartbeat
from runner.serve.lease import Lease
from runner.session import Session

_TICK_S = 0.1
# How often the status file shows that a long job is still attended to.
_NOTE_S = 5.0


class Halt(Enum):
    """Why a running job was ended from outside."""

    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    FENCED = "fenced"
    STOPPING = "stopping"


class Halted(Exception):  # noqa: N818 - an end from outside, no fault
    """The job was ended from outside before its first step."""

    def __init__(self, halt: Halt) -> None:
        super().__init__(halt.value)
        self.halt = halt


def attendant(session: Session, lease: Lease) -> Callable[[], None]:
    """Return what keeps a claim alive before the first step, and raises Halted when the job is to end."""
    last = time.monotonic()

    def attend() -> None:
        nonlocal last
        session.pulse.beat()
        if session.stop.is_set() and session.policy.on_stop == "hand_back":
            raise Halted(Halt.STOPPING)
        if time.monotonic() - last >= session.policy.bus.lease_s / 3:
            last = time.monotonic()
            lease.advance(State.RUNNING, detail="files of Git LFS are being fetched")
            if halt := _look(lease):
                raise Halted(halt)

    return attend


def attend(session: Session, lease: Lease, command: Command, heartbeat: Heartbeat, step: int) -> Halt | None:
    """Wait for a command to end. Returns why it is to be ended from outside, None where it ended by itself."""
    shortest, _ = session.policy.bus.poll
    last_look = last_note = time.monotonic()
    session.standing.steps(step)
    while command.poll(_TICK_S) is None:
        session.pulse.beat()
        if session.stop.is_set() and session.policy.on_stop == "hand_back":
            return Halt.STOPPING
        if heartbeat.maybe(step) is Pushed.STALE:
            last_look = 0.0
        now = time.monotonic()
        if now - last_note >= _NOTE_S:
            last_note = now
            session.standing.steps(step)
        if now - last_look >= shortest:
            last_look = now
            halt = _look(lease)
            if halt:
                return halt
    return None


def _look(lease: Lease) -> Halt | None:
    """See whether somebody put a commit on the branch, and what it means for the job."""
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
