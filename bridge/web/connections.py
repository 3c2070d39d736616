"""Connections that wait for nothing make way: any program of this machine may open as many as it likes."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

# At most so many connections are open; a request beyond them gets status 503.
MOST = 64
# A connection that has not sent a whole request head after this time is closed.
HEAD_S = 10.0
# An answer that its reader has not taken after this time does not keep others from being answered.
STALLED_S = 30.0


class Connection(H11Protocol):
    """One connection. If there are as many as may be, the oldest one that does nothing is closed for a new one."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close an idle one if there is no room, and this one later if it asks for nothing."""
        super().connection_made(transport)
        self._since = self.loop.time()
        if len(self.connections) >= MOST:
            self._make_way()
        self.loop.call_later(HEAD_S, self._give_up)

    def on_response_complete(self) -> None:
        """Note since when it is idle."""
        super().on_response_complete()
        self._since = self.loop.time()

    def _give_up(self) -> None:
        if self.cycle is None:
            self.transport.close()

    def _make_way(self) -> None:
        others = [other for other in self.connections if isinstance(other, Connection) and other is not self]
        others = [other for other in others if other._may_end() and not other.transport.is_closing()]  # noqa: SLF001 - our own
        if others:
            # What its reader does not take would keep it open.
            min(others, key=lambda other: (other._is_busy(), other._since)).transport.abort()  # noqa: SLF001

    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _may_end(self) -> bool:
        return not self._is_busy() or self.loop.time() - self._since > STALLED_S
