"""Decides whether this machine's wall clock can be trusted, by comparing it with the monotonic clock.

Leases, time limits and pauses use the monotonic clock; only the ages of requests and answers use the wall clock. While
the wall clock is in doubt, nothing is refused or deleted for its age. It is in doubt for a while after it was set,
forward or back, and after the start of this process, unless a recent time on the bus confirms it.
"""

import time
from collections.abc import Callable

from bridge.bus import times

_DOUBT_S = 900.0
# The clock's time is compared with times on the bus at most once in this many seconds.
CONFIRM_S = 5.0

Witness = Callable[[], list[float]]


class Clock:
    """The wall clock, and its jumps since the last check.

    ``witness`` returns times that were seen on the bus. Without it, the clock is trusted from the start.
    """

    def __init__(self, tolerance_s: float, witness: Witness | None = None) -> None:
        self._tolerance = tolerance_s
        self._offset = time.time() - time.monotonic()
        self._set_at: float | None = None
        # The clock's jump since the last message about jumps, and the time of that message.
        self._news = 0.0
        self._told_at: float | None = None
        self._witness = witness
        self._started = time.monotonic()
        self._looked: float | None = None
        self._unconfirmed = False
        self._told_unconfirmed = False

    def is_doubtful(self) -> bool:
        """Return whether the clock jumped by more than the tolerance, or this process started, in the last 15 minutes.

        A sleep of the machine counts as a jump. After the start, the clock is trusted as soon as the witness returns a
        time that differs from it by no more than the tolerance.
        """
        now = time.monotonic()
        self._watch(now)
        was_set = self._set_at is not None and now - self._set_at < _DOUBT_S
        return was_set or self._is_unconfirmed(now)

    def _watch(self, now: float) -> None:
        offset = time.time() - now
        if abs(offset - self._offset) > self._tolerance:
            self._news += offset - self._offset
            self._set_at = now
        self._offset = offset

    def _is_unconfirmed(self, now: float) -> bool:
        if self._witness is None:
            return False
        if now - self._started >= _DOUBT_S:
            self._witness = None
            return False
        if self._looked is None or now - self._looked >= CONFIRM_S:
            self._looked = now
            if times.is_confirmed(time.time(), self._witness(), self._tolerance):
                self._witness = None
                return False
            self._unconfirmed = True
        return True

    def news(self) -> str | None:
        """Return a message, once, about a clock that jumped or that nothing on the bus confirms.

        A clock that goes on jumping is told once within the time in which it is in doubt.
        """
        now = time.monotonic()
        self._watch(now)
        moved = 0.0
        if self._news and (self._told_at is None or now - self._told_at >= _DOUBT_S):
            moved, self._news, self._told_at = self._news, 0.0, now
        rest = "for 15 minutes nothing is refused or deleted for its age"
        if moved:
            way = "forward" if moved > 0 else "back"
            return f"this machine's clock went {way} by {abs(moved):.0f} s, or the machine slept: {rest}"
        # One warning is enough: it stays true until the bus confirms the clock or the time is over.
        news = self._unconfirmed and not self._told_unconfirmed
        self._told_unconfirmed = self._told_unconfirmed or news
        return f"nothing on the bus confirms this machine's clock: {rest}, or until it does" if news else None
