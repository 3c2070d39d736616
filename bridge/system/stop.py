"""A request to stop that a signal handler may make at any time."""

from __future__ import annotations

import os
import select
import weakref


class StopRequest:
    """Whether this process was asked to stop, with the methods of a ``threading.Event``.

    An event takes a lock. A handler that sets it runs in the main thread, and waits forever if that thread holds the
    lock just then, because it begins to wait for the event. Here, a byte in a pipe wakes whoever waits.
    """

    def __init__(self) -> None:
        self._asked = False
        self._reader, self._writer = os.pipe()
        weakref.finalize(self, _close, self._reader, self._writer)

    def is_set(self) -> bool:
        """Return whether it was made."""
        return self._asked

    def set(self) -> None:
        """Make it; safe in a signal handler."""
        if not self._asked:
            self._asked = True
            os.write(self._writer, b"\0")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is made, at most so many seconds. Returns whether it was."""
        if not self._asked:
            waiting = select.poll()
            waiting.register(self._reader, select.POLLIN)
            waiting.poll(None if timeout is None else max(0.0, 1000 * timeout))
        return self._asked


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
