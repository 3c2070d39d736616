"""Getting a finished job's answer out, also while the disk is full: until then what it found is in memory alone."""

from __future__ import annotations

from bridge.bus.wire import State
from bridge.errors import InfrastructureError
from runner.host.disk_space import why_not_writable
from runner.serve.answer import Outcome, answer
from runner.serve.lease import Lease
from runner.session import Session

_FIRST_S = 0.5
_LONGEST_S = 30.0
# How often an answer is tried anew when something else than the disk is wrong.
_ATTEMPTS = 3


def deliver(session: Session, lease: Lease, outcome: Outcome) -> State | None:
    """Answer as `answer` does, and wait as long as there is no room to write the answer down.

    Raises what `answer` raised if the state folder can be written to, or if the runner is to stop.
    """
    pause, attempts, told = _FIRST_S, 0, False
    while True:
        try:
            return answer(session, lease, outcome)
        except (OSError, InfrastructureError):
            why = why_not_writable(session.policy.state)
            attempts += why is None
            if attempts >= _ATTEMPTS or session.stop.is_set():
                raise
            if why and not told:
                told = True
                session.tell(
                    f"{lease.branch}: the job has ended and its answer cannot be written to {session.policy.state}: "
                    f"{why}. The answer is kept in memory until there is room: free some on this disk"
                )
        session.stop.wait(pause)
        pause = min(pause * 2, _LONGEST_S)
