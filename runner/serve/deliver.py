"""Delivers a finished job's answer. While the disk is full, the answer waits in memory."""

from __future__ import annotations

from bridge.bus.wire import State
from bridge.errors import InfrastructureError
from runner.context import RunnerContext
from runner.host.disk_space import why_not_writable
from runner.serve.answer import Outcome, answer
from runner.serve.lease import Lease

_FIRST_S = 0.5
_LONGEST_S = 30.0
# How often delivery is retried if the cause of the failure is not the disk.
_ATTEMPTS = 3


def deliver(context: RunnerContext, lease: Lease, outcome: Outcome) -> State | None:
    """Call ``answer``, and retry while the disk is full.

    Raises what ``answer`` raised if the state folder is writable, or if the runner has been told to stop.
    """
    pause, attempts, warned = _FIRST_S, 0, False
    while True:
        try:
            return answer(context, lease, outcome)
        except (OSError, InfrastructureError):
            reason = why_not_writable(context.policy.state)
            attempts += reason is None
            if attempts >= _ATTEMPTS or context.stop.is_set():
                raise
            if reason and not warned:
                warned = True
                context.tell(
                    f"{lease.branch}: the job has ended and its answer cannot be written to {context.policy.state}: "
                    f"{reason}. The answer is kept in memory until there is room: free some on this disk"
                )
        context.stop.wait(pause)
        pause = min(pause * 2, _LONGEST_S)
