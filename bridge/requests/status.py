"""The state of a request, the events on its branch, and its log, as commands show them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from bridge.bus import branch_names, history, wire
from bridge.bus.history import RequestBranch
from bridge.bus.wire import State
from bridge.common import limits
from bridge.common.advice import Door, changed, printed, step
from bridge.common.environment import current_door
from bridge.errors import UsageError, VerificationError
from bridge.requests.groups.names import group_of
from bridge.requests.liveness import Liveness, Queue
from bridge.requests.waiting import Code, Reason
from bridge.system.git import Git
from bridge.verify.answer_files import Contents, read_result
from bridge.verify.public_keys import Pin
from bridge.verify.signed_history import Reader
from bridge.verify.verdict import Conclusion

NOT_SIGNED = "not signed by the pinned key"
REWRITTEN = (
    "the branch was rewritten on the remote: what was sent from here or seen before is no longer on it"
)
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,63}")


@dataclass(frozen=True)
class Status:
    """The state of a request, with what is known about it."""

    branch: str
    state: State
    request: str
    tip: str
    preset: str | None = None
    nonce: str | None = None
    # The group that its branch's name claims, if it is a point of a sweep.
    group: str | None = None
    runner: str | None = None
    step: int | None = None
    at: str | None = None
    detail: str = ""
    exit_code: int | None = None
    # Whether a runner has answered the request. A request that was cancelled before a runner took it ends
    # without an answer.
    answered: bool = False
    # The conclusion about the answer; None if it was not verified for this status.
    conclusion: Conclusion | None = None
    # What an unanswered request waits for: "approval", "runner" (to claim it) or "job" (its end).
    waits_for: str | None = None
    # Heartbeat, place in the queue, and last line of output. Set only if a single request is shown.
    life: Liveness | None = None
    queue: Queue | None = None
    # Why the request waits, according to the runners' presence records.
    reason: Reason | None = None
    last_line: str = ""

    def as_dict(self) -> dict[str, object]:
        """Return the object that ``--json`` prints."""
        plain: dict[str, object] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in ("life", "queue", "reason", "conclusion"):
            part = getattr(self, name)
            plain[name] = part.as_dict() if part else None
        return plain | {"state": str(self.state)}

    @property
    def shown(self) -> Conclusion:
        """The state as commands show it: the answer's conclusion, as far as that is known."""
        return self.conclusion or Conclusion(self.state)

    def concluded(self, conclusion: Conclusion) -> "Status":
        """Return the status with the answer's conclusion and its exit code."""
        return replace(self, conclusion=conclusion, exit_code=conclusion.exit_code)

    @property
    def outlook(self) -> str:
        """One sentence about the wait; empty if nothing is known."""
        return _outlook(self, current_door(), known=True)

    @property
    def outlook_for_agents(self) -> str:
        """The outlook without free text, which anyone who may push could have written, also as a name or a time."""
        life = self.life and replace(self.life, runner=_word(self.life.runner), at=_word(self.life.at))
        queue = self.queue
        if queue and queue.runner is not None:
            queue = replace(queue, runner=_word(queue.runner), at=_word(queue.at or ""))
        reason = self.reason
        if reason and reason.runner and _word(reason.runner) != reason.runner:
            name = reason.runner
            reason = replace(reason, fix=changed(reason.fix, lambda text: text.replace(name, _word(name))))
        return _outlook(replace(self, life=life, queue=queue, reason=reason), Door.MCP, known=False)


@dataclass(frozen=True)
class Event:
    """An event on a request branch: a new state, a piece of log, or (if there was no news for long) only a ``note``."""

    status: Status
    log: str = ""
    note: str = ""


def _outlook(status: Status, door: Door, *, known: bool) -> str:
    life, reason, queue = status.life, status.reason, status.queue
    if life:
        return life.text()
    if reason and reason.code is Code.APPROVAL:
        return printed(reason.fix, door) or ""
    if reason and reason.code is not Code.UNKNOWN:
        return reason.text(door, known=known)
    return queue.text() if queue else ""


def _word(text: str) -> str:
    """Return a name or a time from the bus if it is one word, because one word cannot steer an agent."""
    return text if _WORD.fullmatch(text) else "(unreadable)"


def status_of(branch: RequestBranch, git: Git | None = None) -> Status:
    """Return the status of a request from its branch alone; with ``git``, from its answer too."""
    preset, nonce = branch_names.listed_name(branch.name) or (None, None)
    state = branch.state
    detail = state.detail if state else ""
    stands = State.CANCELLED if branch.is_withdrawn else branch.current_state
    if git and stands is State.GATE_REJECTED:
        # An answer that cannot be read is refused where it is verified.
        with suppress(VerificationError):
            stands = read_result(git, branch).shown_state
    if branch.is_withdrawn:
        detail = f"cancelled by the requester{_reason(branch)} before a runner took it"
    elif branch.cancel and not branch.current_state.is_final:
        detail = f"the requester cancelled{_reason(branch)}; waits for the runner to stop the job"
    return Status(
        branch=branch.name,
        state=stands,
        request=branch.request,
        tip=branch.tip,
        preset=preset,
        nonce=nonce,
        group=group_of(branch.name),
        runner=state.runner.id if state else None,
        step=state.step if state else None,
        at=state.at if state else None,
        detail=detail,
        exit_code=int(wire.EXIT_CODES[stands]) if stands.is_final else None,
        answered=branch.current_state.is_final,
        waits_for=_waits_for(branch),
    )


def _reason(branch: RequestBranch) -> str:
    return f" ({branch.cancel.reason})" if branch.cancel and branch.cancel.reason else ""


def mark_unsigned(
    git: Git, pin: Pin | None, statuses: Sequence[Status], read: Mapping[str, RequestBranch] | None = None
) -> list[Status]:
    """Return the statuses. If a status depends on a state that no pinned key signed, its detail says so."""
    shown = {status.branch: status.tip for status in statuses if status.runner is not None}
    if pin is None or not shown:
        return list(statuses)
    branches = Reader(pin.keys).read_branches(git, shown, read and {name: read[name] for name in shown})
    unsigned = {name for name, branch in branches.items() if branch.unsigned or not branch.state_commit}
    return [
        replace(status, detail="; ".join(filter(None, (NOT_SIGNED, status.detail))))
        if status.branch in unsigned
        else status
        for status in statuses
    ]


def _waits_for(branch: RequestBranch) -> str | None:
    if branch.current_state.is_final or branch.is_withdrawn:
        return None
    if branch.current_state.is_taken:
        return "job"
    needs_approval = branch.state is not None and branch.state.detail.startswith(wire.WAITS_FOR_APPROVAL)
    return "approval" if needs_approval else "runner"


def events(git: Git, branch: RequestBranch, last_tip: str | None) -> Iterator[Event]:
    """Yield the events on a branch after its commit ``last_tip`` (None: after the request), oldest first."""
    if last_tip is None:
        yield Event(status_of(RequestBranch(branch.name, branch.request, branch.request)))
    for commit, state, piece in history.streamed_states(git, last_tip or branch.request, branch.tip):
        if state.branch != branch.name or state.request != branch.request:
            continue
        now = RequestBranch(branch.name, commit, branch.request, state)
        status = status_of(now)
        if state.state.is_final:
            result = read_result(git, now)
            status = replace(status_of(now, git), detail=result.reason.message)
        log = piece.decode("utf-8", "replace")
        gap = f"\n[{state.left_out} bytes were not streamed; the answer will contain the log]\n"
        yield Event(status, gap + log if state.left_out else log)


def streamed_log(git: Git, branch: RequestBranch) -> str:
    """Return the output streamed so far, up to the limit for logs."""
    return "".join(_bounded(event.log for event in events(git, branch, None)))


def kept_log(git: Git, branch: RequestBranch) -> str:
    """Return the log in an answer; UsageError if it is larger than the limit for logs."""
    result = read_result(git, branch)
    paths = [log.path for log in result.logs]
    contents = Contents.of(git, branch.tip, result)
    if sum(contents.files[path].size for path in paths if path in contents.files) > limits.LOG_BYTES:
        message = f"the log is larger than {limits.LOG_BYTES >> 20} MiB"
        raise UsageError(
            message,
            fix=step("Write it to disk", "fetch", branch.name),
            code="too_large",
        )
    read = contents.read(paths, limits.LOG_BYTES)
    return b"".join(read.get(path, b"") for path in paths).decode("utf-8", "replace")


def _bounded(pieces: Iterator[str]) -> Iterator[str]:
    remaining = limits.LOG_BYTES
    for piece in pieces:
        remaining -= len(piece)
        yield piece if remaining >= 0 else ""
