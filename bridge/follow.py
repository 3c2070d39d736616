"""Following a request to its end: how often the remote is asked, and what one that is out of reach is forgiven."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator

from bridge import github
from bridge.errors import InfrastructureError, WaitTimeout
from bridge.git import Git
from bridge.history import View
from bridge.status import Event, events
from bridge.wire import State

FIRST_POLL_S = 0.1
PATIENCE_S = 60.0
LONGEST_POLL_S = {True: 0.5, False: 5.0}  # by whether the remote is a folder on this machine


def follow(git: Git, url: str, look: Callable[[], View], timeout: float | None) -> Iterator[Event]:
    """Yield a request's states and pieces of log as they come, from the first, until it has ended.

    `look` fetches the request's branch from the remote at `url`. Raises WaitTimeout after `timeout` seconds without
    an end.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    longest = LONGEST_POLL_S[url.startswith(("/", "file://", "."))]
    pause, seen, told = FIRST_POLL_S, None, None
    while True:
        # A remote that never answered is told at once; one that stopped answering is waited for.
        view = look() if seen is None else _patiently(look, longest, deadline)
        if view.tip != seen:
            for event in events(git, view, seen):
                now = (event.status.state, event.status.detail)
                if event.log or now != told:
                    yield event
                told = now
            seen, pause = view.tip, FIRST_POLL_S
        if view.stands.is_final:
            return
        if deadline is not None and time.monotonic() >= deadline:
            raise _no_answer(url, view, timeout or 0)
        wait = pause * random.uniform(0.8, 1.2)  # noqa: S311 - spreads polls, guards nothing
        time.sleep(wait if deadline is None else min(wait, max(0.0, deadline - time.monotonic())))
        pause = min(pause * 1.3, longest)


def _patiently(look: Callable[[], View], pause: float, deadline: float | None) -> View:
    """Wait out a remote that is out of reach for a while: a job may take hours."""
    until = min(time.monotonic() + PATIENCE_S, math.inf if deadline is None else deadline)
    while True:
        try:
            return look()
        except InfrastructureError:
            if time.monotonic() >= until:
                raise
            time.sleep(pause)


def _no_answer(url: str, view: View, waited: float) -> WaitTimeout:
    run = github.actions_run(url, view.branch)
    seen = f" GitHub Actions: {run.status} {run.url or ''}." if run and run.status else ""
    if view.stands is State.REQUESTED and view.state and view.state.detail:
        what = f"{view.branch} is not taken yet after {waited:g} s: {view.state.detail}.{seen}"
        fix = "`kakeya wait` goes on waiting; `kakeya cancel` withdraws it."
    elif view.stands is State.REQUESTED:
        what = f"no runner took {view.branch} within {waited:g} s.{seen}"
        fix = "Is a runner serving this remote? `kakeya wait` goes on waiting; `kakeya cancel` withdraws it."
    else:
        what = f"{view.branch} is still {view.stands} after {waited:g} s.{seen}"
        fix = "`kakeya wait` goes on waiting; `kakeya logs -f` shows what it prints."
    return WaitTimeout(what, fix=fix, code="no_answer_in_time")
