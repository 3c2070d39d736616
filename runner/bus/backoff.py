"""Retry with back-off: soon at first, then less and less often."""

import time
from collections.abc import Collection
from dataclasses import dataclass

FIRST_S = 0.5
LONGEST_S = 60.0
_MOST_DOUBLED = 20


@dataclass(slots=True)
class Retry:
    """Counts the failures of one thing, and says when it may be retried."""

    failures: int = 0
    _due_at: float = 0.0

    @property
    def is_due(self) -> bool:
        """Whether a retry is due."""
        return time.monotonic() >= self._due_at

    def failed(self, longest_s: float | None = None, first_s: float | None = None) -> int:
        """Record a failure and return how many there were."""
        self.failures += 1
        pause = (FIRST_S if first_s is None else first_s) * 2.0 ** min(self.failures - 1, _MOST_DOUBLED)
        self._due_at = time.monotonic() + min(pause, LONGEST_S if longest_s is None else longest_s)
        return self.failures

    def succeeded(self) -> None:
        """Forget the failures."""
        self.failures, self._due_at = 0, 0.0


class Backoff:
    """The retries of several things, by key."""

    def __init__(self) -> None:
        self._tried: dict[str, Retry] = {}

    def allows(self, key: str) -> bool:
        """Return whether a retry is due."""
        return key not in self._tried or self._tried[key].is_due

    def failures(self, key: str) -> int:
        """Return how often the key failed."""
        return self._tried[key].failures if key in self._tried else 0

    def failed(self, key: str) -> int:
        """Record a failure and return how many there were."""
        return self._tried.setdefault(key, Retry()).failed()

    def succeeded(self, key: str) -> None:
        """Forget the failures of a key."""
        self._tried.pop(key, None)

    def forget_all_but(self, known: Collection[str]) -> None:
        """Forget the failures of all other keys."""
        self._tried = {key: retry for key, retry in self._tried.items() if key in known}
