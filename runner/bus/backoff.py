"""Retry with back-off: soon at first, then less and less often."""

from __future__ import annotations

import time
from collections.abc import Collection

FIRST_S = 0.5
LONGEST_S = 60.0


class Backoff:
    """Counts failures by key, and says from when on each may be retried."""

    def __init__(self) -> None:
        self._tried: dict[str, tuple[int, float]] = {}

    def allows(self, key: str) -> bool:
        """Return whether a retry is due."""
        return key not in self._tried or time.monotonic() >= self._tried[key][1]

    def failures(self, key: str) -> int:
        """Return how often it failed."""
        return self._tried.get(key, (0, 0.0))[0]

    def failed(self, key: str) -> int:
        """Record a failure and return how many there were."""
        times = self.failures(key) + 1
        self._tried[key] = times, time.monotonic() + min(FIRST_S * 2 ** (times - 1), LONGEST_S)
        return times

    def keep(self, known: Collection[str]) -> None:
        """Forget all other keys."""
        if self._tried:
            self._tried = {key: tried for key, tried in self._tried.items() if key in known}
