"""The push budget: how many more pushes the server's rate limit allows this runner."""

from __future__ import annotations

import time
from collections import deque


class Budget:
    """Counts the pushes of the last minute. Claims and answers are always allowed; heartbeats ask first."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._times: deque[float] = deque()

    def spend(self) -> None:
        """Count one push."""
        self._times.append(time.monotonic())

    def spare(self, reserve: int = 2) -> bool:
        """Return whether an optional push is allowed, if ``reserve`` pushes are kept for necessary ones."""
        now = time.monotonic()
        while self._times and now - self._times[0] > 60:  # noqa: PLR2004 - seconds in the sliding minute
            self._times.popleft()
        return len(self._times) + reserve < self.per_minute

    @property
    def interval_s(self) -> float:
        """Seconds between heartbeats at which the budget lasts."""
        return max(0.5, 60 / max(1, self.per_minute - 2))
