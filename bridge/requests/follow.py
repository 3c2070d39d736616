"""Follows requests to their end. Decides how often to poll, and how long to tolerate an unreachable remote."""

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from bridge.bus import history
from bridge.bus.history import RequestBranch
from bridge.bus.hosts import address
from bridge.bus.wire import State
from bridge.common import limits
from bridge.common.advice import KEEP_WAITING, SEND_AGAIN, TRY_AGAIN_OR_CHECK, Advice, command
from bridge.errors import InfrastructureError, KakeyaError, RefusedError, WaitTimeout
from bridge.requests.liveness import is_expired
from bridge.requests.status import REWRITTEN, Event, Status, events, status_of
from bridge.requests.waiting import Reason
from bridge.system.deadline import pause as pause_for
from bridge.system.deadline import within
from bridge.system.git import Git

# Each branch as it was read, or why it could not be.
Looks = Mapping[str, RequestBranch | KakeyaError]

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
    look: Callable[[Sequence[str]], Looks],
    names: Sequence[str],
    timeout: float | None,
    about: Callable[[RequestBranch], Status] = status_of,
    sent: Callable[[str], str | None] = lambda _: None,
) -> Iterator[tuple[str, Event | KakeyaError | None]]:
    """Yield all states and pieces of log of requests as they arrive, each with its branch's name, until all have ended.

    The last one of a request is followed by None; an error ends a request too, and the others are followed on.
    ``look`` fetches branches together from the remote at ``url``. ``about`` returns what is known about a branch
    without news. ``sent`` returns the request commit that this clone sent, if it sent one. Notes are about the first
    request that has not ended.

    Raises:
        WaitTimeout: not all requests have ended after ``timeout`` seconds.
        InfrastructureError: the remote does not answer, or the surrounding ``stopped_by`` block is told to stop.
    """
    waited = math.inf if timeout is None else timeout
    ends = time.monotonic() + waited
    longest = LONGEST_POLL_S[address.parse(url).is_local]
    followed = {name: _Followed(git, sent(name), _Notes(about, longest)) for name in names}
    pause = FIRST_POLL_S
    while followed:
        first = next(iter(followed.values()))
        branches = _next_look(partial(look, [*followed]), first.branch, longest, ends, waited)
        before = [request.last_tip for request in followed.values()]
        for name, request in followed.items():
            for news in request.look(branches[name]):
                yield name, news
        if before != [request.last_tip for request in followed.values()]:
            pause = FIRST_POLL_S
        followed = {name: request for name, request in followed.items() if not request.has_ended}
        if not followed:
            return
        name, first = next(iter(followed.items()))
        assert first.branch is not None  # noqa: S101 - it was looked at, and without an error
        if time.monotonic() >= ends:
            raise wait_timeout_error(first.branch, waited, first.notes.reason)
        for event in first.notes.due(first.branch):
            yield name, event
        wait = pause * random.uniform(0.8, 1.2)  # noqa: S311 - spreads polls, guards nothing
        pause_for(min(wait, max(0.0, ends - time.monotonic())))
        pause = min(pause * 1.3, longest)


class _Followed:
    """A followed request: what was shown of it, and whether it has ended."""

    def __init__(self, git: Git, sent: str | None, notes: "_Notes") -> None:
        self.notes = notes
        self.branch: RequestBranch | None = None
        self.last_tip: str | None = None
        self.has_ended = False
        self._git, self._sent = git, sent
        self._over = _Over(git)
        self._shown: tuple[State, str] | None = None

    def look(self, branch: RequestBranch | KakeyaError) -> Iterator[Event | KakeyaError | None]:
        """Yield what happened since the last look. The request's end is followed by None, or is an error."""
        try:
            yield from self._events(branch)
        except InfrastructureError:
            raise
        except KakeyaError as error:
            self.has_ended = True
            yield error
            return
        if self.has_ended:
            yield None

    def _events(self, look: RequestBranch | KakeyaError) -> Iterator[Event]:
        """Yield what happened since the last look.

        Raises:
            WaitTimeout: the request has expired before a runner took it.
            RefusedError: the branch was deleted or rewritten meanwhile.
        """
        branch = self.branch = _on_line(self._git, look, self.last_tip or self._sent)
        if branch.tip != self.last_tip:
            for event in events(self._git, branch, self.last_tip):
                now = (event.status.state, event.status.detail)
                if event.log or now != self._shown:
                    yield event
                self._shown = now
            self.last_tip = branch.tip
            self.notes.moved(branch)
        if branch.current_state.is_final:
            self.has_ended = True
        elif self._over.is_due(branch):
            if not branch.is_withdrawn:
                message = f"{branch.name} expired before a runner took it, and none will"
                raise WaitTimeout(message, fix=SEND_AGAIN, code="expired")
            self.has_ended = True
            yield Event(status_of(branch))


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


def _next_look(
    look: Callable[[], Looks], last: RequestBranch | None, pause: float, ends: float, waited: float
) -> Looks:
    """Fetch branches before the time ends. A remote that never answered is an error; a later outage is waited out."""
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


def _on_line(git: Git, look: RequestBranch | KakeyaError, known: str | None) -> RequestBranch:
    """Return a fetched branch; RefusedError if it is gone, or lacks the commit ``known``."""
    if isinstance(look, KakeyaError):
        if known is None or look.code != "no_such_request":
            raise look
        message = f"{look.message}: it was there, and was deleted"
        raise RefusedError(message, fix=look.fix, code="gone") from look
    branch = look
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
