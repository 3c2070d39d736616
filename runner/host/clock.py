"""Whether this machine's wall clock can be believed: it is watched beside a clock that only runs forward.

Leases, time-outs and pauses are measured by the latter. The wall clock alone says how old a request and an answer
are. While it is in doubt, nothing is refused or deleted for its age: for a while after it was set, forward or back,
and after the start of this process, when it may be wrong since the machine started, unless something on the bus bears
about the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bridge.bus import times

_DOUBT_S = 900.0
# How often the bus is looked at for the time, at most.
_LOOK_S = 5.0

Witness = Callable[[], list[float]]


class Clock:
    """The wall clock, and what became of it since it was last looked at.

    `witness` returns the times that were seen on the bus; without one the clock is believed from the start.
    """

    def __init__(self, tolerance_s: float = 300.0, witness: Witness | None = None) -> None:
        self._tolerance = tolerance_s
        self._offset = time.time() - time.monotonic()
        self._set_at: float | None = None
        self._news = 0.0
        self._witness = witness
        self._started = time.monotonic()
        self._looked: float | None = None
        self._unconfirmed = False

    def is_doubtful(self) -> bool:
        """Say whether it was set by more than the tolerance, slept through or started within a quarter of an hour.

        At the start it is believed as soon as the witness names a time that differs from it by no more than the
        tolerance.
        """
        return self.was_set() or self._is_unconfirmed(time.monotonic())

    def was_set(self) -> bool:
        """Say whether it was set by more than the tolerance, or slept through, within the last quarter of an hour."""
        now = time.monotonic()
        self._watch(now)
        return self._set_at is not None and now - self._set_at < _DOUBT_S

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
        if self._looked is None or now - self._looked >= _LOOK_S:
            self._looked = now
            if times.agrees(time.time(), self._witness(), self._tolerance):
                self._witness = None
                return False
            self._unconfirmed = True
        return True

    def news(self) -> str | None:
        """Return a sentence about a clock that was set, or that nothing on the bus confirms, once."""
        self._watch(time.monotonic())
        moved, self._news = self._news, 0.0
        rest = "for 15 minutes nothing is refused or deleted for its age"
        if moved:
            way = "forward" if moved > 0 else "back"
            return f"this machine's clock went {way} by {abs(moved):.0f} s, or the machine slept: {rest}"
        told, self._unconfirmed = self._unconfirmed, False
        return f"nothing on the bus confirms this machine's clock: {rest}, or until it does" if told else None
