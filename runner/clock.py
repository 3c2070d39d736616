"""Whether this machine's wall clock can be believed: it is watched beside a clock that only runs forward.

Leases, time-outs and pauses are measured by the latter. The wall clock alone says how old a request and an answer
are, so while it has just been set, forward or back, nothing is refused or deleted for its age.
"""

from __future__ import annotations

import time

_DOUBT_S = 900.0


class Clock:
    """The wall clock, and what became of it since it was last looked at."""

    def __init__(self, tolerance_s: float = 300.0) -> None:
        self._tolerance = tolerance_s
        self._offset = time.time() - time.monotonic()
        self._set_at: float | None = None
        self._news = 0.0

    def is_doubtful(self) -> bool:
        """Say whether it was set by more than the tolerance within the last quarter of an hour, or slept through."""
        offset, now = time.time() - time.monotonic(), time.monotonic()
        if abs(offset - self._offset) > self._tolerance:
            self._news += offset - self._offset
            self._set_at = now
        self._offset = offset
        return self._set_at is not None and now - self._set_at < _DOUBT_S

    def news(self) -> str | None:
        """Return a sentence about a clock that was set, once."""
        self.is_doubtful()
        moved, self._news = self._news, 0.0
        if not moved:
            return None
        way = "forward" if moved > 0 else "back"
        return (
            f"this machine's clock went {way} by {abs(moved):.0f} s, or the machine slept: "
            "for 15 minutes nothing is refused or deleted for its age"
        )
