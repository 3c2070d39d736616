"""Decides when to push while a job runs: soon after new output, otherwise as often as the lease needs."""

from __future__ import annotations

import time

from bridge.errors import InfrastructureError
from runner.bus.bus import Pushed
from runner.context import RunnerContext
from runner.serve.lease import Lease

# The time between two pieces of log grows with the run time: this share of it, up to so many seconds. A day of steady
# output thus stays below the number of commits that readers look through.
_SHARE = 1 / 200
LONGEST_PAUSE_S = 5.0
# At least so many heartbeats are pushed per lease, even if the push budget is used up.
_PER_LEASE = 3


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
