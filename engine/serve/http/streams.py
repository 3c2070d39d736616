"""Sends server-sent events, and handles clients that disconnect or stop reading."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from engine.serve.errors import ApiError, gone

T = TypeVar("T")
DONE = "[DONE]"
MOST = 64 << 10  # bytes of events to write at once
COMMENT = b": keep-alive\n\n"  # clients skip it
QUIET_SECONDS = 5.0  # then a stream shows that it is alive: clients and proxies give up on silent ones
# Created only once: json.dumps would create an encoder for each call.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
# Line ends in Unicode, but not in server-sent events. Clients with httpx's `iter_lines` would cut an event at them.
_ESCAPED = {ord(character): f"\\u{ord(character):04x}" for character in "\x85\u2028\u2029"}


def event(data: Any, name: str | None = None) -> bytes:
    """Return one event."""
    text = data if isinstance(data, str) else _encode(data).translate(_ESCAPED)
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {text}\n\n".encode("utf-8", "replace")


def failed(error: ApiError) -> bytes:
    """Return the event that ends a stream of OpenAI's completions with an error."""
    return event(error.body())


class EventStream(Response):
    """A streamed response. It ends its answers, by ``cancel``, if the client disconnects or stops reading.

    ``events`` yields the events to write; it gets what has to be awaited before a pause. A client may take
    ``write_seconds`` to read a piece. After ``quiet_seconds`` of silence, ``ping`` is written.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: Callable[[Callable[[], Awaitable[None]]], AsyncIterator[bytes]],
        cancel: Callable[[], None],
        write_seconds: float,
        ping: bytes = COMMENT,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events, self._cancel, self._write_seconds = events, cancel, write_seconds
        self._ping, self._quiet_seconds = ping, quiet_seconds

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG002
        """Write the stream. Called by ASGI."""
        tasks = [asyncio.create_task(each) for each in (_disconnected(receive), self._write(send))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._cancel()
            for task in tasks:
                task.cancel()  # has no effect on one that is done
                with suppress(asyncio.CancelledError, TimeoutError, OSError):
                    await task

    async def _write(self, send: Any) -> None:
        """Write what is ready at the same time at once, and hold nothing back while waiting for more."""
        ready = bytearray()
        loop = asyncio.get_running_loop()
        writing, written = asyncio.Lock(), loop.time()
        async with asyncio.timeout(None) as limit:

            async def put(message: dict[str, Any]) -> None:
                nonlocal written
                limit.reschedule(loop.time() + self._write_seconds)
                await send(message)
                limit.reschedule(None)
                written = loop.time()

            async def flush() -> None:
                async with writing:
                    if ready:
                        data = bytes(ready)
                        ready.clear()
                        await put({"type": "http.response.body", "body": data, "more_body": True})

            async def ping() -> None:
                while True:
                    await asyncio.sleep(written + self._quiet_seconds - loop.time())
                    if loop.time() - written >= self._quiet_seconds:
                        ready.extend(self._ping)
                        await flush()

            await put({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            pinging = asyncio.create_task(ping())
            try:
                async for data in self._events(flush):
                    ready.extend(data)
                    if len(ready) >= MOST:
                        await flush()
            finally:
                pinging.cancel()
                with suppress(asyncio.CancelledError):
                    await pinging
            await put({"type": "http.response.body", "body": bytes(ready), "more_body": False})


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work for a request; cancel it if the client disconnects (ApiError 499)."""
    task = asyncio.create_task(work)
    watcher = asyncio.create_task(_disconnected(request.receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
    finally:  # do not wait: at the server's end, the answer to a cancelled request has to be sent at once
        watcher.cancel()
        gave_up = task.cancel()
    if gave_up:
        raise gone()
    return task.result()


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
