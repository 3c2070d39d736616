"""Retry with back-off: soon at first, then less and less often."""

import time
from collections.abc import Collection

FIRST_S = 0.5
LONGEST_S = 60.0
_MOST_DOUBLED = 20


class Backoff:
    """Counts failures by key, and says when each key may be retried."""

    def __init__(self, longest_s: float | None = None, first_s: float | None = None) -> None:
        self._longest_s = LONGEST_S if longest_s is None else longest_s
        self._first_s = FIRST_S if first_s is None else first_s
        self._tried: dict[str, tuple[int, float]] = {}

    def allows(self, key: str) -> bool:
        """Return whether a retry is due."""
        return key not in self._tried or time.monotonic() >= self._tried[key][1]

    def failures(self, key: str) -> int:
        """Return how often the key failed."""
        return self._tried.get(key, (0, 0.0))[0]

    def failed(self, key: str) -> int:
        """Record a failure and return how many there were."""
        times = self.failures(key) + 1
        pause = self._first_s * 2.0 ** min(times - 1, _MOST_DOUBLED)
        self._tried[key] = times, time.monotonic() + min(pause, self._longest_s)
        return times

    def succeeded(self, key: str) -> None:
        """Forget the failures of a key."""
        self._tried.pop(key, None)

    def keep(self, known: Collection[str]) -> None:
        """Forget all other keys."""
        self._tried = {key: tried for key, tried in self._tried.items() if key in known}
