"""One connection: uvicorn's HTTP/1.1 with a limit on how long the head of a request may take to come.

uvicorn limits how long a connection may be idle between two requests, but not before the first, and not within a head.
Whoever opens connections and sends heads slowly could have all that the server takes. So if there are as many as may
be, the one that has been without a request for longest makes way for a new one.
"""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0


class Connection(H11Protocol):
    """Closes itself if a request's head is not complete in time. An idle one makes way for a new one."""

    _head: asyncio.TimerHandle | None = None
    idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._wait()
        self.idle_since = self.loop.time()
        # uvicorn refuses a request when there are as many as may be.
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._make_way()

    def data_received(self, data: bytes) -> None:
        """Take what has come: a part of a head, or what completes it."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._head is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Note since when it is idle."""
        super().on_response_complete()
        self.idle_since = self.loop.time()

    def _make_way(self) -> None:
        """Close the connection that has been without a request for longest, if there is one."""
        others = [other for other in self.connections if isinstance(other, Connection) and other is not self]
        idle = [other for other in others if other.cycle is None or other.cycle.response_complete]
        if idle:
            oldest = min(idle, key=lambda other: other.idle_since)
            # It leaves the list now, and not only when the loop has closed it.
            self.connections.discard(oldest)
            oldest.transport.abort()

    def _wait(self) -> None:
        self._head = self.loop.call_later(HEAD_SECONDS, self._late)

    def _stop(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _late(self) -> None:
        self._head = None
        if not self.transport.is_closing():
            self.transport.close()
