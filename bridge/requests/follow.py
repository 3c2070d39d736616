"""Following a request to its end: how often the remote is asked, and what one that is out of reach is forgiven."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator

from bridge.bus.history import View
from bridge.bus.wire import State
from bridge.errors import InfrastructureError, WaitTimeout
from bridge.requests.status import Event, Status, events, status_of
from bridge.system import github
from bridge.system.deadline import within
from bridge.system.git import Git

FIRST_POLL_S = 0.1
PATIENCE_S = 60.0
# What one look at the remote may take, also where the caller's time ends sooner.
LOOK_S = 5.0
LONGEST_POLL_S = {True: 0.5, False: 5.0}  # by whether the remote is a folder on this machine


# When nothing happens, something is said about that: at first soon, then now and then.
FIRST_NOTE_S = 5.0
NOTE_S = 60.0


def follow(
    git: Git,
    url: str,
    look: Callable[[], View],
    timeout: float | None,
    about: Callable[[View], Status] = status_of,
) -> Iterator[Event]:
    """Yield a request's states and pieces of log as they come, from the first, until it has ended.

    `look` fetches the request's branch from the remote at `url`; `about` says what is known about one on which nothing
    happens. Raises WaitTimeout after `timeout` seconds without an end.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    longest = LONGEST_POLL_S[url.startswith(("/", "file://", "."))]
    pause, told = FIRST_POLL_S, None
    note_at = time.monotonic() + FIRST_NOTE_S
    view: View | None = None
    seen: str | None = None
    while True:
        view = _next_view(look, view, url, longest, deadline, timeout or 0)
        if view.tip != seen:
            for event in events(git, view, seen):
                now = (event.status.state, event.status.detail)
                if event.log or now != told:
                    yield event
                told = now
            seen, pause = view.tip, FIRST_POLL_S
            note_at = time.monotonic() + _until_note(view)
        if view.stands.is_final:
            return
        if deadline is not None and time.monotonic() >= deadline:
            raise _no_answer(url, view, timeout or 0)
        if time.monotonic() >= note_at:
            note_at = time.monotonic() + NOTE_S
            status = about(view)
            if status.outlook:
                yield Event(status, note=status.outlook)
        wait = pause * random.uniform(0.8, 1.2)  # noqa: S311 - spreads polls, guards nothing
        time.sleep(wait if deadline is None else min(wait, max(0.0, deadline - time.monotonic())))
        pause = min(pause * 1.3, longest)


def _next_view(
    look: Callable[[], View],
    last: View | None,
    url: str,
    longest: float,
    deadline: float | None,
    timeout: float,
) -> View:
    """Look at the branch within the deadline. A remote that never answered is told at once, later it is waited for."""
    try:
        with within(None if deadline is None else max(LOOK_S, deadline - time.monotonic())):
            return look() if last is None else _patiently(look, longest, deadline)
    except InfrastructureError as error:
        if deadline is None or time.monotonic() < deadline:
            raise
        raise (_no_answer(url, last, timeout) if last else _no_remote(error, timeout)) from error


def _until_note(view: View) -> float:
    """Return how long a branch may stand still until that is worth a word: a job may be silent for its lease."""
    return view.state.lease_s if view.state and view.stands.is_taken else FIRST_NOTE_S


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


def _no_remote(error: InfrastructureError, waited: float) -> WaitTimeout:
    what = f"the remote did not answer within {waited:g} s: {error.message}"
    return WaitTimeout(what, fix="Try again; `kakeya doctor` checks the remote.", code="no_answer_in_time")


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
