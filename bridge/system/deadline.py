"""A deadline for the programs that a block of code runs, which also ends them when this process has to stop.

The deadline belongs to a block of the caller's code, and not to each call, so that no call on the way to git can forget
it. It holds in the thread that set it.
"""

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Protocol

from bridge.errors import InfrastructureError

# How long a call may still take after this process was asked to stop: enough for a small push. Each call that
# exceeds the time halves the time of the next one, so a server that never answers costs at most twice this
# time.
AFTER_STOP_S = 5.0
# A pause notices a stop within this time.
_NOTICE_S = 0.2


class Stop(Protocol):
    """An object that says whether this process was asked to stop, such as a ``StopRequest``."""

    def is_set(self) -> bool:
        """Return whether this process was asked to stop."""


class _Ending:
    """A stop that may come, and the time that a call has after it."""

    def __init__(self, stop: Stop) -> None:
        self.is_set = stop.is_set
        self.left_s = AFTER_STOP_S


@dataclass(frozen=True)
class _Scope:
    """The limits of every call within a block."""

    until: float = math.inf
    ending: _Ending | None = None


_OPEN = _Scope()
_SCOPE: ContextVar[_Scope] = ContextVar("scope", default=_OPEN)


@contextmanager
def _bounded(**bounds: Any) -> Iterator[None]:
    outer = _SCOPE.get()
    _SCOPE.set(replace(outer, **bounds))
    try:
        yield
    finally:
        _SCOPE.set(outer)


def within(seconds: float | None) -> AbstractContextManager[None]:
    """End every program that runs in this block after ``seconds``; None sets no limit of its own."""
    until = math.inf if seconds is None else time.monotonic() + seconds
    return _bounded(until=min(_SCOPE.get().until, until))


def time_left() -> float:
    """Return for how many seconds programs may still run in this block; infinity if nothing bounds it."""
    return _SCOPE.get().until - time.monotonic()


def stopped_by(stop: Stop) -> AbstractContextManager[None]:
    """End every program that runs in this block at most AFTER_STOP_S seconds after ``stop`` is set."""
    return _bounded(ending=_Ending(stop))


def pause(seconds: float) -> None:
    """Sleep.

    Raises:
        InfrastructureError: the stop of the surrounding block was set; this is noticed at once.
    """
    ending = _SCOPE.get().ending
    until = time.monotonic() + seconds
    while not (ending and ending.is_set()):
        remaining = until - time.monotonic()
        if remaining <= 0:
            return
        time.sleep(min(remaining, _NOTICE_S) if ending else remaining)
    raise InfrastructureError("the wait ended because its caller gave it up", code="given_up")


class Limit:
    """The time limit of a call that begins now: ``timeout`` seconds, or less in a block with a deadline."""

    def __init__(self, timeout: float | None = None) -> None:
        scope, now = _SCOPE.get(), time.monotonic()
        self._ending, self._asked = scope.ending, False
        self._until = min(scope.until, now + (math.inf if timeout is None else timeout))
        self._allowed = max(0.0, self._until - now)

    def passed(self) -> str | None:
        """Return why the call has to end, or None if it may go on."""
        if self._ending and not self._asked and self._ending.is_set():
            self._asked = True
            self._until = min(self._until, time.monotonic() + self._ending.left_s)
        if self.remaining() > 0:
            return None
        if self._ending and self._asked:
            self._ending.left_s /= 2
            return "was ended because this process was asked to stop"
        return f"took longer than {self._allowed:.3g} s"

    def ended(self) -> None:
        """Record that the call ended by itself."""
        if self._ending:
            self._ending.left_s = AFTER_STOP_S

    def remaining(self) -> float:
        """Return how many seconds are left."""
        return self._until - time.monotonic()
