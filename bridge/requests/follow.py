"""Follows a request to its end. Decides how often to poll, and how long to tolerate an unreachable remote."""

import math
import random
import time
from collections.abc import Callable, Iterator
from functools import partial

from bridge.bus import history
from bridge.bus.history import RequestBranch
from bridge.bus.hosts import address
from bridge.bus.wire import State
from bridge.common import limits
from bridge.common.advice import KEEP_WAITING, SEND_AGAIN, TRY_AGAIN_OR_CHECK, Advice, command
from bridge.errors import InfrastructureError, RefusedError, UsageError, WaitTimeout
from bridge.requests.liveness import is_expired
from bridge.requests.status import REWRITTEN, Event, Status, events, status_of
from bridge.requests.waiting import Reason
from bridge.system.deadline import pause as pause_for
from bridge.system.deadline import within
from bridge.system.git import Git

FIRST_POLL_S = 0.1
PATIENCE_S = 60.0
# Minimum time for one fetch, even if the caller's time ends sooner.
LOOK_S = 5.0
# Seconds between polls, by whether the remote is a folder on this machine.
LONGEST_POLL_S = {True: 0.5, False: 5.0}
# After how many seconds without an event a note is shown: the first one soon, later ones rarely.
FIRST_NOTE_S = 5.0
# How long a runner on this machine may take to claim a request before the client looks for a reason why it waits.
CLAIM_S = 1.0
NOTE_S = 60.0
# How long to wait for a runner's confirmation that an unclaimed request was cancelled or has expired.
CONFIRM_S = 10.0


def follow(
    git: Git,
    url: str,
    look: Callable[[], RequestBranch],
    timeout: float | None,
    about: Callable[[RequestBranch], Status] = status_of,
    sent: str | None = None,
) -> Iterator[Event]:
    """Yield all states and pieces of log of a request as they arrive, until it has ended.

    ``look`` fetches the request's branch from the remote at ``url``. ``about`` returns what is known about a branch
    without news. ``sent`` is the request commit that this clone sent, if it sent one.

    Raises:
        WaitTimeout: the request has not ended after ``timeout`` seconds, or has expired before a runner took it.
        RefusedError: the branch was deleted or rewritten meanwhile.
        InfrastructureError: the surrounding ``stopped_by`` block is told to stop.
    """
    waited = math.inf if timeout is None else timeout
    ends = time.monotonic() + waited
    longest = LONGEST_POLL_S[address.parse(url).is_local]
    notes, over = _Notes(about, longest), _Over(git)
    pause, shown = FIRST_POLL_S, None
    branch: RequestBranch | None = None
    last_tip: str | None = None
    while True:
        on_line = partial(_on_line, git, look, last_tip or sent)
        branch = _next_view(on_line, branch, longest, ends, waited)
        if branch.tip != last_tip:
            for event in events(git, branch, last_tip):
                now = (event.status.state, event.status.detail)
                if event.log or now != shown:
                    yield event
                shown = now
            last_tip, pause = branch.tip, FIRST_POLL_S
            notes.moved(branch)
        if branch.current_state.is_final:
            return
        if over.is_due(branch):
            if not branch.is_withdrawn:
                message = f"{branch.name} expired before a runner took it, and none will"
                raise WaitTimeout(message, fix=SEND_AGAIN, code="expired")
            yield Event(status_of(branch))
            return
        if time.monotonic() >= ends:
            raise wait_timeout_error(branch, waited, notes.reason)
        yield from notes.due(branch)
        wait = pause * random.uniform(0.8, 1.2)  # noqa: S311 - spreads polls, guards nothing
        pause_for(min(wait, max(0.0, ends - time.monotonic())))
        pause = min(pause * 1.3, longest)


class _Over:
    """Detects a request that ends without a runner: it was cancelled or expired, and no runner confirms that."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._since: float | None = None

    def is_due(self, branch: RequestBranch) -> bool:
        """Return whether to wait no longer."""
        if not (branch.is_withdrawn or is_expired(self._git, branch, time.time())):
            self._since = None
            return False
        self._since = self._since or time.monotonic()
        return time.monotonic() - self._since >= CONFIRM_S


class _Notes:
    """Notes while nothing happens: the first soon, later ones rarely; at once if no runner can take the request."""

    def __init__(self, about: Callable[[RequestBranch], Status], longest: float) -> None:
        self._about = about
        self._at = time.monotonic() + FIRST_NOTE_S
        # After one poll, find out whether a runner can take the request.
        self._stuck_at = time.monotonic() + max(longest, CLAIM_S)
        # The last known reason why the request waits.
        self.reason: Reason | None = None

    def moved(self, branch: RequestBranch) -> None:
        """Record that the branch moved, which restarts the pause before the next note."""
        # A running job may be silent for its lease.
        pause = branch.state.lease_s if branch.state and branch.current_state.is_taken else FIRST_NOTE_S
        self._at = time.monotonic() + pause
        self.reason = None

    def due(self, branch: RequestBranch) -> Iterator[Event]:
        """Yield the note that is due now, if any."""
        now = time.monotonic()
        is_early = branch.current_state is State.REQUESTED and now >= self._stuck_at
        if now < self._at and not is_early:
            return
        self._stuck_at = math.inf
        status = self._look_around(branch)
        self.reason = status.reason
        if now >= self._at or (status.reason and status.reason.is_stuck):
            self._at = now + NOTE_S
            if status.outlook:
                yield Event(status, note=status.outlook)

    def _look_around(self, branch: RequestBranch) -> Status:
        """Return what is known about the branch. Other branches on the bus do not delay this for long."""
        try:
            with within(limits.PRESENCE_S):
                return self._about(branch)
        except InfrastructureError:
            return status_of(branch)


def _next_view(
    look: Callable[[], RequestBranch], last: RequestBranch | None, pause: float, ends: float, waited: float
) -> RequestBranch:
    """Fetch the branch before the time ends. A remote that never answered is an error; a later outage is waited out."""
    until = time.monotonic() + (PATIENCE_S if last else 0.0)
    while True:
        try:
            with within(max(LOOK_S, ends - time.monotonic())):
                return look()
        except InfrastructureError as error:
            now = time.monotonic()
            if now >= ends:
                if last:
                    raise wait_timeout_error(last, waited) from error
                message = f"the remote did not answer within {waited:g} s: {error.own_message}"
                raise WaitTimeout(
                    message, fix=TRY_AGAIN_OR_CHECK, code="no_answer_in_time", quoting=error.quoting
                ) from error
            if now >= until:
                raise
            pause_for(pause)


def _on_line(git: Git, look: Callable[[], RequestBranch], known: str | None) -> RequestBranch:
    """Fetch a branch; RefusedError if it is gone, or lacks the commit ``known``."""
    try:
        branch = look()
    except UsageError as missing:
        if known is None or missing.code != "no_such_request":
            raise
        message = f"{missing.message}: it was there, and was deleted"
        raise RefusedError(message, fix=missing.fix, code="gone") from missing
    if known is None or branch.tip == known or history.is_ancestor(git, known, branch.tip):
        return branch
    raise RefusedError(f"{branch.name}: {REWRITTEN}", code="rewritten")


def wait_timeout_error(branch: RequestBranch, waited: float, reason: Reason | None = None) -> WaitTimeout:
    """Return the error for a request without an answer after ``waited`` seconds, with why it waits if known."""
    quoting, fix = "", ""
    if reason and reason.is_stuck and branch.current_state is State.REQUESTED:
        message, fix = f"{branch.name} is not claimed after {waited:g} s: {reason.message}.", reason.fix
    elif branch.current_state is State.REQUESTED and branch.state and branch.state.detail:
        message, quoting = f"{branch.name} is not claimed yet after {waited:g} s.", branch.state.detail
        fix = Advice(KEEP_WAITING, ". To withdraw the request: ", command("cancel"), ".")
    elif branch.current_state is State.REQUESTED:
        message = f"no runner took {branch.name} within {waited:g} s."
        fix = Advice(
            "Check that a runner serves this remote, and run ", command("wait"), " again; ", command("cancel"),
            " withdraws it.",
        )  # fmt: skip
    else:
        message = f"{branch.name} is still {branch.current_state} after {waited:g} s."
        fix = Advice(KEEP_WAITING, ". To see the job's output: ", command("logs", "-f"), ".")
    return WaitTimeout(message, fix=fix, code="no_answer_in_time", quoting=quoting)
