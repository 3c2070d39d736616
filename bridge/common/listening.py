"""Shared by the HTTP servers: a listening socket, and connections that are closed in favour of new ones.

Any program on this machine can open as many connections as a server accepts, and then send nothing, send half a
request, or not read the answer. uvicorn limits how long a connection may be idle between two requests, but neither
before the first request nor within the head of a request.
"""

import asyncio
import socket
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from bridge.common.errors import InfrastructureError

LOOPBACK = "127.0.0.1"
HEAD_S = 10.0  # time limit for receiving the head of a request


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; port 0 takes a free one. OSError if it cannot be used."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(256)
    except OSError:
        listener.close()
        raise
    return listener


def listen_here(port: int, option: str) -> socket.socket:
    """Return a socket that listens on a port of this machine; 0 takes a free one.

    Raises:
        InfrastructureError: which names the option that chooses another port, if the port cannot be used.
    """
    try:
        return listen(LOOPBACK, port)
    except OSError as error:
        fix = f"Choose another one with {option}; 0 takes a free one."
        raise InfrastructureError(f"port {port} cannot be used: {error.strerror}", fix=fix) from error


def names(port: int) -> list[str]:
    """Return the ``Host`` headers that are valid for a server of this machine on this port."""
    return [f"{name}:{port}" for name in (LOOPBACK, "localhost")]


class Connection(H11Protocol):
    """uvicorn's connection, but it closes itself if a head is late, and the oldest idle one is closed for a new one.

    The latter happens when there are as many connections as uvicorn's ``limit_concurrency``: the next request would get
    status 503.

    Attributes:
        stalled_s: a connection whose client has not read its answer for this many seconds may be closed too; None:
            never.
    """

    stalled_s: ClassVar[float | None] = None
    _head: asyncio.TimerHandle | None = None
    _since = 0.0  # when it was opened, or its last answer was complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._wait()
        self._make_way()

    def data_received(self, data: bytes) -> None:
        """Receive a part of a request's head."""
        self._make_way()  # all others may have been busy when this one was opened
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
        """Record that the connection is idle from now on."""
        super().on_response_complete()
        self._since = self.loop.time()

    def _make_way(self) -> None:
        """If there are too many, close the one that has been without a request for longest, or else a stalled one."""
        if self.limit_concurrency is None or len(self.connections) < self.limit_concurrency:
            return
        others = [other for other in self.connections if isinstance(other, Connection) and other is not self]
        closable = [other for other in others if not other._is_busy or other._is_stalled]  # noqa: SLF001 - our own
        if closable:
            oldest = min(closable, key=lambda other: (other._is_busy, other._since))  # noqa: SLF001
            # Remove it from the list now; the loop closes it later.
            self.connections.discard(oldest)
            oldest.transport.abort()  # a normal close would wait until the client reads

    @property
    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _is_stalled(self) -> bool:
        return self.stalled_s is not None and self.loop.time() - self._since > self.stalled_s

    def _wait(self) -> None:
        self._head = self.loop.call_later(HEAD_S, self._late)

    def _stop(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _late(self) -> None:
        self._head = None
        if not self.transport.is_closing():
            self.transport.close()
