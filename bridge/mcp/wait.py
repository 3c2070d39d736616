"""Runs one call in a thread, within a time limit, while the event loop reports progress to the agent."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from bridge.errors import InfrastructureError, WaitTimeout
from bridge.mcp import groups
from bridge.mcp.bounds import short
from bridge.mcp.calls import BusClient, standing
from bridge.mcp.models import SECONDS, Standing, Wait
from bridge.reports.readable import Readable
from bridge.requests.status import Event
from bridge.system.deadline import stopped_by, within

# Progress is reported after each change and at least this often, because clients give up on silent calls.
TELL_S = 8.0
# Longest duration of a call whose client sees progress; `kakeya_wait` takes as long as its caller asks.
LONGEST_S = 600.0
_LOOK_S = 0.5
# Part of the time that is reserved for the last fetch and for verifying.
_REST_S = 2.0
_LAST_LOOK_S = 8.0
# After the limit git is ended at once. Any other work that hangs is left to its thread, and the client gets an error.
_GRACE_S = 3.0

Tell = Callable[[float, str], Awaitable[None]]
_Answer = TypeVar("_Answer")


class Progress:
    """The progress of a call: the elapsed time and, for a wait, the request's state."""

    def __init__(self) -> None:
        self._state, self._outlook, self._line = "", "", ""
        self._people = Readable()

    def record(self, event: Event) -> None:
        """Record an event."""
        self._state = str(event.status.state)
        if event.note:
            queue = event.status.queue
            position = f"position {queue.before + 1} of {queue.waiting}; " if queue else ""
            self._outlook = position + short(event.status.outlook_for_agents)
        elif event.log:
            lines = [line for line in self._people.add(event.log).split("\n") if line.strip()]
            self._line = short(lines[-1]) if lines else self._line
        else:
            detail = short(event.status.detail)
            self._outlook = f"the branch says: {detail}" if detail else ""

    def text(self) -> str:
        """Return the progress as one line."""
        line = f"the job printed: {self._line}" if self._line else ""
        return "; ".join(filter(None, (self._state, self._outlook, line)))


async def call(work: Callable[[Progress], _Answer], limit_s: float, tell: Tell) -> _Answer:
    """Return the answer of ``work``, which runs in a thread for at most ``limit_s`` seconds.

    If the client cancels the call, this returns at once, and git is ended soon after: otherwise the thread would block
    later calls, because there are only a few threads.

    Raises:
        InfrastructureError: it took too long.
    """
    progress, over = Progress(), threading.Event()

    def bounded() -> _Answer:
        with stopped_by(over), within(limit_s):
            return work(progress)

    telling = asyncio.create_task(_tell(progress, tell))
    try:
        with anyio.fail_after(limit_s + _GRACE_S):
            return await anyio.to_thread.run_sync(bounded, abandon_on_cancel=True)
    except TimeoutError as error:
        fix = "Call again; kakeya_doctor checks the remote."
        raise InfrastructureError(
            f"the call took longer than {limit_s:g} s", fix=fix, code="timeout"
        ) from error
    finally:
        over.set()
        telling.cancel()


async def _tell(progress: Progress, tell: Tell) -> None:
    began = last = time.monotonic()
    shown = ""
    while True:
        now, text = time.monotonic(), progress.text()
        if text != shown or now - last >= TELL_S:
            shown, last = text, now
            await tell(round(now - began, 1), f"{now - began:.0f} s: {text or 'asking the remote'}")
        await asyncio.sleep(_LOOK_S)


def call_limit_s(seconds: float | None, *, sees_progress: bool) -> float:
    """Return how long a call may take in seconds. ``seconds``: the requested duration of a wait.

    A client that sees no progress gives up after a minute, whatever duration it asked for.
    """
    if seconds is None:
        return LONGEST_S if sees_progress else SECONDS
    return seconds if sees_progress else min(seconds, SECONDS)


def wait(bus: BusClient, args: Wait, seconds: float, progress: Progress) -> Standing:
    """Wait at most ``seconds`` for an answer, and return the request's status after that."""
    if group := bus.group(args.request):
        try:
            groups.wait(group, max(0.0, seconds - _REST_S), progress.record)
        except WaitTimeout:
            with within(_LAST_LOOK_S):
                return groups.standing(group)
        return groups.standing(group)
    run = bus.find(args.request)
    try:
        for event in run.follow(max(0.0, seconds - _REST_S)):
            progress.record(event)
    except WaitTimeout:
        # A missing answer is not an error here. An unreachable remote is reported by the last fetch.
        with within(_LAST_LOOK_S):
            return standing(run)
    return standing(run)
