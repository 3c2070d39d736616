"""Watches a running command: pushes heartbeats with its output, and ends it when it is cancelled or told to stop."""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum

from bridge.bus.wire import State
from bridge.errors import InfrastructureError
from runner.bus.bus import Pushed
from runner.bus.others import OtherRunners
from runner.job.command import Command
from runner.parts import Process
from runner.policy import Policy
from runner.serve.lease import Lease
from runner.state.activity import StatusFile
from runner.state.forwarding import Forwarder

_TICK_S = 0.1
# Fetching the branch takes processor time that the job should have.
_LOOK_S = 0.3
# How often the status file is updated during a long job.
_NOTE_S = 5.0
# The time between two pieces of log is this share of the run time so far, to bound the number of commits.
_SHARE = 1 / 200
# How often the other runners that share the push budget are counted.
_COUNT_S = 30.0
LONGEST_PAUSE_S = 5.0


class StopReason(Enum):
    """Why a job does not run to its end."""

    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    FENCED = "fenced"
    STOPPING = "stopping"
    # This runner cannot run the request after all, but another one may.
    HANDED_ON = "handed_on"


class RunStopped(Exception):  # noqa: N818 - a stop from outside, not a fault
    """The request was stopped from outside. ``why`` is the requester's own reason for cancelling it, if any."""

    def __init__(self, reason: StopReason, why: str = "") -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.why = why


def wait_for_end(
    command: Command,
    keepalive: "Keepalive",
    status_file: StatusFile,
    obey: Callable[[], object],
    step: int,
    quiet_s: float = 0.0,
) -> None:
    """Wait until a command ends. In its first ``quiet_s`` seconds, nothing is pushed, fetched or written meanwhile.

    ``obey`` looks for the operator's orders.

    Raises:
        RunStopped: the request must end, for a reason outside the job.
        InfrastructureError: this process no longer has its state folder.
    """
    if quiet_s and command.poll(quiet_s) is not None:
        keepalive.check(step)
        return
    last_note = last_obeyed = time.monotonic()
    status_file.record_step(step)
    while command.poll(_TICK_S) is None:
        keepalive.check(step)
        now = time.monotonic()
        if now - last_obeyed >= _LOOK_S:
            # No order stops a running job, but the status file shows that the order was received.
            last_obeyed = now
            keepalive.check_process()
            obey()
        if now - last_note >= _NOTE_S:
            last_note = now
            status_file.record_step(step)


def _look(lease: Lease) -> RunStopped | None:
    """Return why the job has to end if somebody pushed to the branch, else None."""
    branch = None
    with suppress(InfrastructureError):
        branch = lease.fetch_changes()
    if branch is None:
        return None
    if lease.is_fenced(branch):
        return RunStopped(StopReason.FENCED)
    stands = lease.owns_state(branch) and branch.cancel == lease.request_branch.cancel
    lease.build_on(branch)
    if stands:
        return None
    if branch.cancel and branch.cancel.request == lease.request:
        return RunStopped(StopReason.CANCELLED, branch.cancel.reason)
    return RunStopped(StopReason.SUPERSEDED)


class Keepalive:
    """Keeps the claim on a request alive, and notices when the request must end. ``doing`` is shown between steps."""

    def __init__(
        self,
        process: Process,
        forwarder: Forwarder,
        others: OtherRunners,
        policy: Policy,
        lease: Lease,
        doing: str = "",
    ) -> None:
        self._process = process
        self._forwarder = forwarder
        self._others = others
        self._hands_back = policy.on_stop == "hand_back"
        self._lease = lease
        self._doing = doing
        self._between_looks = min(max(policy.bus.poll[0], _LOOK_S), lease.pace.longest_s)
        self._began = self._last = self._last_look = time.monotonic()
        # The step that the branch shows as running; None before the first heartbeat.
        self._known: int | None = None
        self._counted = -math.inf

    def check(self, step: int | None = None) -> None:
        """Push a heartbeat if it is time, and raise RunStopped if the request must end."""
        self._process.heartbeat.touch()
        if self._process.withdrawal.is_set():
            raise RunStopped(StopReason.CANCELLED, self._process.withdrawal.reason)
        if self._process.stop.is_set() and self._hands_back:
            raise RunStopped(StopReason.STOPPING)
        has_moved = self.beat(step) is Pushed.STALE
        if has_moved or time.monotonic() - self._last_look >= self._between_looks:
            self._last_look = time.monotonic()
            if stopped := _look(self._lease):
                raise stopped
            if cancel := self._forwarder.cancellation(self._lease.branch, self._lease.request):
                # The answer repeats only a cancellation that is on its branch already, below what is signed.
                raise RunStopped(StopReason.CANCELLED, cancel.reason)

    def check_process(self) -> None:
        """Raise InfrastructureError if this process no longer has its state folder."""
        self._process.health.check_lock()

    def beat(self, step: int | None = None) -> Pushed | None:
        """Push a heartbeat if it is time. Returns the push's result, or None if no push was tried."""
        now = time.monotonic()
        has_news = step is not None and (self._lease.log.has_pending or step != self._known)
        if now - self._last < self._pause(now, news=has_news):
            return None
        self._last = now
        pushed = self._push(step)
        if now - self._counted >= _COUNT_S:
            # After the push, so that a slow bus delays no heartbeat.
            self._counted = now
            self._lease.budget.sharers = 1 + self._others.count_busy()
        return pushed

    def _push(self, step: int | None) -> Pushed:
        try:
            if step is None:
                return self._lease.advance(State.RUNNING, detail=self._doing)
            pushed = self._lease.beat(step)
        except (InfrastructureError, OSError):
            # A full disk does not end the job: there may be room again before the job ends.
            return Pushed.FAILED
        if pushed is Pushed.DONE:
            self._known = step
        return pushed

    def _pause(self, now: float, *, news: bool) -> float:
        budget, longest = self._lease.budget, self._lease.pace.longest_s
        if not news or not budget.has_spare():
            return longest
        growing = min((now - self._began) * _SHARE, LONGEST_PAUSE_S)
        # The first heartbeat is not held back, so that followers soon see that the job runs.
        shortest = budget.first_s if self._known is None else budget.interval_s
        return min(max(shortest, growing), longest)
