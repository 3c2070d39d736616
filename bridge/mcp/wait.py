"""Waits for an answer in a thread, while the event loop reports progress to the agent."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial

import anyio.to_thread

from bridge.errors import WaitTimeout
from bridge.mcp.bounds import short
from bridge.mcp.calls import Place, standing
from bridge.mcp.models import Standing, Wait
from bridge.requests.status import Event
from bridge.system.deadline import stopped_by, within

# Progress is reported after each change and at least this often, because clients give up on silent calls.
TELL_S = 8.0
_LOOK_S = 0.5
# Part of the time that is reserved for the last fetch and for verifying.
_REST_S = 2.0
_LAST_LOOK_S = 8.0

Tell = Callable[[float, str], Awaitable[None]]


class Progress:
    """The progress of a request during the wait."""

    def __init__(self) -> None:
        self._state, self._outlook, self._line = "", "", ""

    def take(self, event: Event) -> None:
        """Record an event."""
        self._state = str(event.status.state)
        if event.note:
            queue = event.status.queue
            place = f"position {queue.before + 1} of {queue.waiting}; " if queue else ""
            self._outlook = place + short(event.status.outlook_for_agents)
        elif event.log:
            lines = [line for line in event.log.split("\n") if line.strip()]
            self._line = short(lines[-1]) if lines else self._line
        else:
            detail = short(event.status.detail)
            self._outlook = f"the branch says: {detail}" if detail else ""

    def text(self) -> str:
        """Return the progress as one line."""
        line = f"the job printed: {self._line}" if self._line else ""
        return "; ".join(filter(None, (self._state, self._outlook, line)))


async def wait(place: Place, args: Wait, tell: Tell) -> Standing:
    """Wait at most ``seconds`` for an answer, and return the request's status after that.

    A cancelled call returns at once, and its thread stops polling soon after. Otherwise the thread would block later
    calls, because the number of threads is small.
    """
    progress, over = Progress(), threading.Event()
    telling = asyncio.create_task(_tell(progress, tell))
    try:
        return await anyio.to_thread.run_sync(
            partial(_follow, place, args, progress, over), abandon_on_cancel=True
        )
    finally:
        over.set()
        telling.cancel()


async def _tell(progress: Progress, tell: Tell) -> None:
    began = last = time.monotonic()
    said = ""
    while True:
        now, text = time.monotonic(), progress.text()
        if text != said or now - last >= TELL_S:
            said, last = text, now
            await tell(round(now - began, 1), f"{now - began:.0f} s: {text or 'asking the remote'}")
        await asyncio.sleep(_LOOK_S)


def _follow(place: Place, args: Wait, progress: Progress, over: threading.Event) -> Standing:
    with stopped_by(over):
        found = place.find(args.request)
        try:
            for event in found.follow(max(0.0, args.seconds - _REST_S)):
                progress.take(event)
        except WaitTimeout:
            # A missing answer is not an error here. An unreachable remote is reported by the last fetch.
            with within(_LAST_LOOK_S):
                return standing(found)
        return standing(found)
