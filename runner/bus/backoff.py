"""Retry with back-off: soon at first, then less and less often."""

from __future__ import annotations

import time
from collections.abc import Collection

_FIRST_S = 0.5
_LONGEST_S = 60.0


class Patience:
    """Counts failures by key, and says from when on each may be retried."""

    def __init__(self) -> None:
        self._tried: dict[str, tuple[int, float]] = {}

    def allows(self, what: str) -> bool:
        """Return whether a retry is due."""
        return what not in self._tried or time.monotonic() >= self._tried[what][1]

    def failures(self, what: str) -> int:
        """Return how often it failed."""
        return self._tried.get(what, (0, 0.0))[0]

    def failed(self, what: str) -> int:
        """Record a failure and return how many there were."""
        times = self.failures(what) + 1
        self._tried[what] = times, time.monotonic() + min(_FIRST_S * 2 ** (times - 1), _LONGEST_S)
        return times

    def keep(self, known: Collection[str]) -> None:
        """Forget all other keys."""
        if self._tried:
            self._tried = {what: tried for what, tried in self._tried.items() if what in known}
