"""From the engine's thread to the event loop: events wait in one place, and one wake-up is for all of them.

Waking the loop costs a system call and a change of threads, so that of each event on its own would cost more than
the event. Whoever puts events in wakes the loop when it has put in all that are ready.
"""

import asyncio
from collections import deque
from typing import Any


class Outbox:
    """Events on their way to the queues of the event loop. The loop is the one in which :meth:``open`` was called."""

    def __init__(self) -> None:
        self._events: deque[tuple[asyncio.Queue[Any], Any]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = False

    def open(self) -> None:
        """Hand events to the running loop from now on."""
        self._loop = asyncio.get_running_loop()

    def put(self, queue: "asyncio.Queue[Any]", event: Any) -> None:
        """Add an event for a queue; from the engine's thread. It arrives after the next :meth:``wake``."""
        self._events.append((queue, event))

    def wake(self) -> None:
        """Have what was put in delivered, if the loop is not about to do so already; from the engine's thread."""
        if not self._events or self._woken or self._loop is None:
            return
        self._woken = True  # before the call, since the loop may deliver before it returns
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop is closed: nobody reads any more
            self._woken = False
            self._events.clear()

    def _deliver(self) -> None:
        self._woken = False  # first: what is put in from here on needs a wake-up of its own
        while self._events:
            queue, event = self._events.popleft()
            queue.put_nowait(event)
