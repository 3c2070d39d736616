"""How often the branch is written to while a job runs: when there is something to say, else as the lease needs."""

from __future__ import annotations

import time

from bridge.errors import InfrastructureError
from runner.bus.bus import Pushed
from runner.serve.lease import Lease
from runner.session import Session

# Between two pieces of log lie at most this share of the run time so far and at most so many seconds. A day of steady
# output thus makes fewer commits than readers look through.
_SHARE = 1 / 200
_LONGEST_PAUSE_S = 5.0
# So many heartbeats fit into a lease, whatever the push budget says.
_PER_LEASE = 3


class Heartbeat:
    """One job's heartbeats."""

    def __init__(self, session: Session, lease: Lease) -> None:
        self._budget = session.bus.budget
        self._longest = session.policy.bus.lease_s / _PER_LEASE
        self._lease = lease
        self._began = self._last = time.monotonic()
        # The step that readers of the branch know to be running.
        self._known: int | None = None

    def maybe(self, step: int) -> Pushed | None:
        """Push one if it is time. Returns how that ended, None where it was not tried."""
        now = time.monotonic()
        if now - self._last < self._pause(now, news=self._lease.log.waits or step != self._known):
            return None
        self._last = now
        try:
            pushed = self._lease.beat(step)
        except (InfrastructureError, OSError):
            # A disk that is full is no reason to end a job: it may have room again before the job has ended.
            return Pushed.FAILED
        if pushed is Pushed.DONE:
            self._known = step
        return pushed

    def _pause(self, now: float, *, news: bool) -> float:
        if not news or not self._budget.spare():
            return self._longest
        growing = min((now - self._began) * _SHARE, _LONGEST_PAUSE_S)
        return min(max(self._budget.interval_s, growing), self._longest)
