"""How long a job's next heartbeat may wait, and the lease that its states announce, so that the lease lasts until then.

The policy's lease counts if the push budget can keep it. Otherwise the states announce a longer one: a lease that runs
out lets another runner run the job a second time, and hosts refuse more pushes than the budget.
"""

import math

from runner.bus.bus import Budget

# At least this many heartbeats are pushed in a lease of the policy, if the budget allows it.
_PER_LEASE = 3
# A lease that is longer than the policy's lasts for this many pauses, so that one heartbeat may fail.
_PAUSES = 2
# The pause grows by this factor from one heartbeat to the next, so a job that is lost at its beginning is missed soon.
_GROWTH = 3
_MOST_GROWN = 20


class Pace:
    """The pace of one claim's heartbeats."""

    def __init__(self, lease_s: float, budget: Budget, longest_lease_s: float = math.inf) -> None:
        """Set the pace. Other runners wait for no lease that is longer than ``longest_lease_s``."""
        self._policy_s = self.lease_s = lease_s
        self._most_s = max(lease_s / _PER_LEASE, longest_lease_s / _PAUSES)
        self._budget = budget
        self._planned = 0
        # The longest pause before the next heartbeat, in seconds.
        self.longest_s = lease_s / _PER_LEASE

    def plan(self) -> float:
        """Plan the pause after the push that is about to be made. Returns the lease, in seconds, to announce in it."""
        pause_s = self._policy_s / _PER_LEASE
        grown = min(pause_s * float(_GROWTH**self._planned), self._budget.interval_s)
        self._planned = min(self._planned + 1, _MOST_GROWN)
        self.longest_s = min(max(pause_s, grown, self._budget.wait_after_push_s()), self._most_s)
        self.lease_s = max(self._policy_s, _PAUSES * self.longest_s)
        return self.lease_s
