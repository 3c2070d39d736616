"""Shared by the HTTP servers: a listening socket, and connections that are closed in favour of new ones.

Any program on this machine can open as many connections as a server accepts, and then send nothing, send half a
request, or not read the answer. uvicorn limits how long a connection may be idle between two requests, but neither
before the first request nor within a request.
"""

import asyncio
import resource
import socket
from typing import Any, ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from bridge.common.errors import InfrastructureError

LOOPBACK = "127.0.0.1"
HEAD_S = 10.0  # time limit for receiving the head of a request
BODY_S = 60.0  # time limit for receiving its body


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


def configure(
    app: Any, most: int = 512, *, keep_alive_s: int = 30, connection: "type[Connection] | None" = None
) -> uvicorn.Config:
    """Return the configuration of a server; each of our servers is made by it.

    Args:
        app: the ASGI application.
        most: connections at the same time; at most half of the files that this process may open (256 on macOS).
        keep_alive_s: seconds that a connection may stay idle after an answer.
        connection: a subclass of ``Connection``.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = min(most, files // 2) if files != resource.RLIM_INFINITY else most
    return uvicorn.Config(
        app,
        http=connection or Connection,
        ws="none",
        log_config=None,  # uvicorn's own would write to standard output
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=most,
        backlog=max(
            most // 8, 1
        ),  # asyncio accepts three times as many before the first can make another one close
        timeout_keep_alive=keep_alive_s,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=32 << 10,
    )


class Connection(H11Protocol):
    """uvicorn's connection, but it closes itself if a head or a body is late, and makes way for a new one.

    If there are as many connections as uvicorn's ``limit_concurrency``, the one that has been without a whole request
    for longest is closed. If none is, the next request gets status 503.

    Attributes:
        stalled_s: a connection whose client has not read its answer for this many seconds may be closed too; None:
            never.
    """

    stalled_s: ClassVar[float | None] = None
    _timer: asyncio.TimerHandle | None = None
    _awaited: object = (
        None  # h11's state of the client: IDLE is before a head, SEND_BODY before the end of a body
    )
    _since = 0.0  # when it was opened, or its last answer was complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._most, self._since = self.limit_concurrency, self.loop.time()
        self._await(h11.IDLE)
        self._make_way()

    def data_received(self, data: bytes) -> None:
        """Receive a part of a request."""
        self._make_way()  # all others may have been busy when this one was opened
        # uvicorn would also count the tasks of connections that were closed a moment ago.
        full = self._most is not None and len(self.connections) >= self._most
        self.limit_concurrency = 0 if full else None
        super().data_received(data)
        self._await(self.conn.their_state)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._await(None)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Record that the connection is idle from now on."""
        super().on_response_complete()
        self._since = self.loop.time()

    def _make_way(self) -> None:
        """If there are too many connections, close the one that was idle for longest, or else a stalled one."""
        if self._most is None or len(self.connections) < self._most:
            return
        others = [other for other in self.connections if isinstance(other, Connection) and other is not self]
        closable = [other for other in others if not other._is_busy or other._is_stalled]  # noqa: SLF001 - our own
        if closable:
            oldest = min(closable, key=lambda other: (other._is_busy, other._since))  # noqa: SLF001
            # Remove the connection from the list now; the event loop closes it later.
            self.connections.discard(oldest)
            oldest.transport.abort()  # a normal close would wait until the client reads

    @property
    def _is_busy(self) -> bool:
        """Whether a whole request has no answer yet."""
        has_request = self.cycle is not None and not self.cycle.response_complete
        return has_request and self.conn.their_state is not h11.SEND_BODY

    @property
    def _is_stalled(self) -> bool:
        return self.stalled_s is not None and self.loop.time() - self._since > self.stalled_s

    def _await(self, state: object) -> None:
        """Close the connection unless the head or the body, whichever this state lacks, is complete in time."""
        if state is self._awaited:
            return  # a byte now and then gives no more time
        if self._timer is not None:
            self._timer.cancel()
        self._awaited, self._timer = state, None
        if state is h11.IDLE or state is h11.SEND_BODY:
            self._timer = self.loop.call_later(HEAD_S if state is h11.IDLE else BODY_S, self._late)

    def _late(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
