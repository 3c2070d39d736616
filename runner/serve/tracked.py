"""What this runner knows of each request branch between polls: one record a branch. After a restart the bus has it all.

A new commit on a branch makes a new record, and a branch that is gone drops its record. Nothing else is pruned.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bridge.bus.branch_names import Requester, requested_at
from bridge.bus.history import RequestBranch
from bridge.bus.wire import State
from bridge.errors import InfrastructureError
from bridge.manifest import Request
from runner.bus.backoff import Retry
from runner.faults import why_not_writable
from runner.refusal import Refusal
from runner.serve.steps.step_runner import NOT_BEGUN

_FAILURES = 3
_LONGEST_FAULT_S = 600.0
CANNOT_BEGIN = "cannot be begun here"
_STAYS = (
    "asked_at", "why", "turn", "last_state", "checked_at", "checked_reason", "fault", "repeat", "was_answered",
    "is_double_told",
)  # fmt: skip


@dataclass(eq=False, slots=True)
class TrackedRequest:
    """One request branch at one commit. Until it is read, ``branch`` has only its name and its tip."""

    branch: RequestBranch
    is_read: bool = False
    # When this process first saw the branch at this commit, by its monotonic clock.
    first_seen: float = field(default_factory=lambda: time.monotonic())  # noqa: PLW0108 - tests set the clock
    # The parsed manifest, or why it cannot be parsed, with its size in memory; None if it is not kept.
    manifest: Request | Refusal | None = None
    manifest_bytes: int = 0
    # The requester whose turn the request uses, by this list of signers; None if not known yet.
    requester: Requester | None = None
    signers: object = None
    # Whether a poll has read this commit: reading it does not kill the runner.
    is_harmless: bool = False
    # Whether admission refused the request: it is answered after others had their turn.
    is_unadmitted: bool = False
    # The request needs no work before this time, in Unix seconds.
    settled_until: float = 0.0
    retry: Retry = field(default_factory=Retry)

    # The fields from here on are in _STAYS: they stay if the branch moves. `why`: why the request waits, as
    # text for the operator; `turn`: its place in the queue.
    why: str = ""
    turn: float = math.inf
    # The time in the branch's name; None if it was not read yet.
    asked_at: int | None = None
    # The commit of the last state that counts, and since when it is the last one. Other commits do not restart this.
    last_state: tuple[str, float] | None = None
    # When a request that waits for an approval or for another runner was checked, and why it waits.
    checked_at: float = -math.inf
    checked_reason: str = ""
    # Back-off while this host cannot handle the branch, and while it needs one answer after another.
    fault: Retry = field(default_factory=Retry)
    repeat: Retry = field(default_factory=Retry)
    was_answered: bool = False
    is_double_told: bool = False

    def unchanged_s(self, state_commit: str | None = None) -> float:
        """Return for how many seconds this process has seen the branch at the same commit.

        The clocks of two machines are never compared: a lease has lapsed if this process itself has seen no movement
        for the length of the lease. With ``state_commit`` (the commit of the last signed state), return for how long
        that state has been the last one: unsigned states on top of it neither renew nor end a lease.
        """
        since = self.first_seen
        if state_commit:
            if self.last_state is None or self.last_state[0] != state_commit:
                self.last_state = state_commit, since
            since = self.last_state[1]
        return time.monotonic() - since

    @property
    def age(self) -> tuple[int, str]:
        """The sort key that puts the oldest request first: the time in its branch's name, and the name."""
        if self.asked_at is None:
            self.asked_at = requested_at(self.branch.name)
        return self.asked_at, self.branch.name

    def settle(self, until: float = math.inf, reason: str = "") -> None:
        """Note that the branch needs no work until its tip changes or a time has come, and why its request waits."""
        self.settled_until, self.why = until, reason

    def check_again(self) -> None:
        """Let a request that waited for a decision be checked again at once."""
        self.is_unadmitted, self.checked_at, self.checked_reason = False, -math.inf, ""

    def note_wait(self, reason: str) -> bool:
        """Record why the request waits for a decision. Returns whether the reason is new."""
        is_new = reason != self.checked_reason
        self.checked_at, self.checked_reason, self.why = time.monotonic(), reason, reason
        return is_new


class Tracker:
    """The records of all request branches."""

    def __init__(self, state_folder: Path, tell: Callable[[str], None]) -> None:
        self._state_folder = state_folder
        self._tell = tell
        self._requests: dict[str, TrackedRequest] = {}
        self._tips: Mapping[str, str] = {}

    def __iter__(self) -> Iterator[TrackedRequest]:
        return iter(self._requests.values())

    def see(self, tips: Mapping[str, str]) -> None:
        """Record the current tips."""
        if tips is self._tips:
            return
        before, self._tips, self._requests = self._requests, tips, {}
        for name, tip in tips.items():
            known = before.get(name)
            if known is None or known.branch.tip != tip:
                stays = {field: getattr(known, field) for field in _STAYS} if known else {}
                known = TrackedRequest(RequestBranch(name, tip, tip), **stays)
            self._requests[name] = known

    def note_unsent(self, unsent: Collection[str], push_fault: str) -> dict[str, str]:
        """Note which answers cannot be pushed, by branch. Returns the reason for branches that are not on the bus."""
        reason = f"its answer is kept until the bus takes it: {push_fault}"
        for name in unsent:
            if name in self._requests:
                self._requests[name].why = reason
        return dict.fromkeys((name for name in unsent if name not in self._requests), reason)

    def pause(self, reason: str) -> None:
        """Note why no request is taken now."""
        now = time.time()
        for request in self:
            request.turn = math.inf
            if request.settled_until < now:
                request.turn, request.why = 0, request.why or reason

    @property
    def is_settled(self) -> bool:
        """Whether no branch needs work now."""
        now = time.time()
        return all(request.settled_until >= now for request in self)

    def due(self, unsent: Collection[str]) -> list[TrackedRequest]:
        """Return the requests that may need work now. Those whose answer waits to be pushed need none."""
        due, now = [], time.time()
        for request in self:
            may_retry = request.retry.is_due and request.repeat.is_due and request.fault.is_due
            if may_retry and request.settled_until < now and request.branch.name not in unsent:
                due.append(request)
            else:
                request.checked_at, request.checked_reason, request.is_unadmitted = -math.inf, "", False
                request.manifest, request.manifest_bytes = None, 0
        return due

    def forget_states(self, requests: Iterable[TrackedRequest]) -> None:
        """Forget what was read of branches, unless they have neither a state nor a cancellation."""
        for request in requests:
            branch = request.branch
            if branch.state or branch.cancel:
                request.branch, request.is_read = RequestBranch(branch.name, branch.tip, branch.tip), False

    def note_order(self, waiting: Iterable[TrackedRequest], ordered: Sequence[TrackedRequest]) -> None:
        """Note which requests wait for their turn, in this order, and which have no turn."""
        for request in self:
            request.turn = math.inf
        for request in waiting:
            request.turn, request.why = (
                len(ordered),
                "its requester has used up their share: limits.per_requester",
            )
        for i, request in enumerate(ordered):
            request.turn, request.why = i, "waits for its turn"

    def reasons(self) -> dict[str, str]:
        """Return why each request waits, by branch, in the order of their turns."""
        waiting = sorted((request for request in self if request.why), key=lambda request: request.turn)
        return {request.branch.name: request.why for request in waiting}

    def skip(self, request: TrackedRequest, reason: str) -> None:
        """Skip a branch until its tip changes."""
        request.settle()
        self._tell(f"{request.branch.name} is left out: {reason}")

    def mark_answered(self, request: TrackedRequest, published: State | None) -> None:
        """Back off if a branch needs one answer after another: the bus may store pushes elsewhere."""
        if published is None or not published.is_final:
            return
        if request.was_answered and request.repeat.failed() == _FAILURES:
            self._tell(
                f"{request.branch.name} needs one answer after another, so it is looked at less often: does somebody "
                "push to it again and again, or is it another name of a branch on the bus?"
            )
        request.was_answered = True

    def mark_failed(self, name: str, error: Exception) -> None:
        """Record that a branch could not be handled: it is never given up. A full disk is an InfrastructureError."""
        folder = self._state_folder
        if reason := why_not_writable(folder):
            message = f"cannot write to {folder}: {reason}. Requests wait until there is room on this disk"
            raise InfrastructureError(message, code="no_room") from error
        is_ours = isinstance(error, InfrastructureError) and error.code == NOT_BEGUN
        request = self._requests[name]
        request.why = f"{CANNOT_BEGIN if is_ours else 'failed here'}: {error}"
        self._tell(f"{name}: {type(error).__name__}: {error}")
        if request.fault.failed(_LONGEST_FAULT_S) == _FAILURES:
            self._tell(f"{name}: tried less and less often from now on")
