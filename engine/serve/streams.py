"""Server-sent events, and clients that go away or stop reading."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine.serve.server import Asked

DONE = "[DONE]"


def event(data: Any, name: str | None = None) -> bytes:
    """Return one event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, allow_nan=False)
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {text}\n\n".encode("utf-8", "replace")


class EventStream(Response):
    """A response that is written as its events come, and that ends its answers when nobody reads them.

    Args:
        events: what to write.
        asked: the answers behind them.
        write_seconds: how long the client may take to read a piece.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], asked: Asked, write_seconds: float) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events, self._asked, self._write_seconds = events, asked, write_seconds

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG002
        """Write the stream: ASGI's own call."""
        watcher = asyncio.create_task(_gone(receive, self._asked))
        writer = asyncio.create_task(self._write(send))
        try:
            await asyncio.wait({watcher, writer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._asked.cancel()
            for task in (watcher, writer):
                if not task.done():
                    task.cancel()
                with suppress(asyncio.CancelledError, TimeoutError, OSError):
                    await task

    async def _write(self, send: Any) -> None:
        async def put(message: dict[str, Any]) -> None:
            await asyncio.wait_for(send(message), self._write_seconds)

        await put({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for data in self._events:
            await put({"type": "http.response.body", "body": data, "more_body": True})
        await put({"type": "http.response.body", "body": b"", "more_body": False})


@asynccontextmanager
async def attended(request: Request, asked: Asked) -> AsyncIterator[None]:
    """End the answers if the client goes away before the block is done."""
    watcher = asyncio.create_task(_gone(request.receive, asked))
    try:
        yield
    finally:
        asked.cancel()
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher


async def _gone(receive: Any, asked: Asked) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    asked.cancel()
