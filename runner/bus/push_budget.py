"""How often this runner may still push: servers count."""

from __future__ import annotations

import time
from collections import deque


class Budget:
    """A sliding minute of pushes. Claims and answers are always allowed; heartbeats ask first."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._times: deque[float] = deque()

    def spend(self) -> None:
        """Count one push."""
        self._times.append(time.monotonic())

    def spare(self, reserve: int = 2) -> bool:
        """Say whether a push may be made that is not needed, leaving `reserve` for those that are."""
        now = time.monotonic()
        while self._times and now - self._times[0] > 60:  # noqa: PLR2004 - seconds in the sliding minute
            self._times.popleft()
        return len(self._times) + reserve < self.per_minute

    @property
    def interval_s(self) -> float:
        """How far apart heartbeats should lie for the budget to last."""
        return max(0.5, 60 / max(1, self.per_minute - 2))
