"""Waiting for an answer: in a thread, while the event loop tells the agent how it stands."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

import anyio.to_thread

from bridge.errors import WaitTimeout
from bridge.mcp.bounds import short
from bridge.mcp.calls import Place, standing
from bridge.mcp.models import Standing, Wait
from bridge.requests.status import Event
from bridge.system.deadline import within

# Told at once when something changed, and at least this often: clients give up on a call that says nothing.
TELL_S = 8.0
_LOOK_S = 0.5
# What is left of the time for the last look and for verifying.
_REST_S = 2.0
_LAST_LOOK_S = 8.0

Tell = Callable[[float, str], Awaitable[None]]


class Progress:
    """What is known of a request while it is waited for."""

    def __init__(self) -> None:
        self._state, self._outlook, self._line = "", "", ""

    def take(self, event: Event) -> None:
        """Take note of what happened."""
        self._state = str(event.status.state)
        if event.note:
            queue = event.status.queue
            place = f"position {queue.before + 1} of {queue.waiting}; " if queue else ""
            self._outlook = place + short(event.note)
        elif event.log:
            lines = [line for line in event.log.split("\n") if line.strip()]
            self._line = short(lines[-1]) if lines else self._line
        else:
            self._outlook = short(event.status.detail)

    def text(self) -> str:
        """Return it in one line."""
        line = f"the job printed: {self._line}" if self._line else ""
        return "; ".join(filter(None, (self._state, self._outlook, line)))


async def wait(place: Place, args: Wait, tell: Tell) -> Standing:
    """Wait at most `seconds` for an answer, and return where the request then stands."""
    progress = Progress()
    telling = asyncio.create_task(_tell(progress, tell))
    try:
        return await anyio.to_thread.run_sync(partial(_follow, place, args, progress), abandon_on_cancel=True)
    finally:
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


def _follow(place: Place, args: Wait, progress: Progress) -> Standing:
    found = place.find(args.request)
    try:
        for event in found.follow(max(0.0, args.seconds - _REST_S)):
            progress.take(event)
    except WaitTimeout:
        # No answer yet is an answer to this call. A remote that is out of reach is told by the last look.
        with within(_LAST_LOOK_S):
            return standing(found)
    return standing(found)
