"""One connection: uvicorn's HTTP/1.1 with a limit on how long the head of a request may take to come.

uvicorn limits how long a connection may be idle between two requests, but not before the first, and not within a head.
Whoever opens connections and sends heads slowly could have all that the server takes.
"""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0


class Connection(H11Protocol):
    """Closes itself if a request's head is not complete in time."""

    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._wait()

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
