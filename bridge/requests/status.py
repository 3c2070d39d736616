"""Where a request stands, and what happened to it: a branch's history in the form that is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bridge.bus import branch_names, history, wire
from bridge.bus.history import View
from bridge.bus.wire import State
from bridge.errors import RefusedError
from bridge.requests.liveness import Life, Queue
from bridge.system.git import Git
from bridge.system.github import ActionsRun
from bridge.verify.check import read_result
from bridge.verify.pins import Pin
from bridge.verify.signed_history import Reader

NOT_SIGNED = "not signed by the pinned key"


@dataclass(frozen=True)
class Status:
    """Where a request stands."""

    branch: str
    state: State
    request: str
    tip: str
    preset: str | None = None
    nonce: str | None = None
    runner: str | None = None
    step: int | None = None
    at: str | None = None
    detail: str = ""
    exit_code: int | None = None
    # What a request that has no answer waits for: "approval", "runner" (somebody to take it) or "job" (its end).
    waits_for: str | None = None
    # Filled in where a single request is looked at: who works on it, why it waits, what its job printed last.
    life: Life | None = None
    queue: Queue | None = None
    last_line: str = ""
    actions: ActionsRun | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the form that `--json` prints."""
        plain: dict[str, object] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in ("life", "queue", "actions"):
            part = getattr(self, name)
            plain[name] = part.as_dict() if part else None
        return plain | {"state": str(self.state)}

    @property
    def outlook(self) -> str:
        """What is known about the wait, in one sentence; nothing if there is nothing to say."""
        return self.life.text() if self.life else self.queue.text() if self.queue else ""


@dataclass(frozen=True)
class Event:
    """What happened on a request branch: a new state, a piece of log; or nothing for long, as `note` says."""

    status: Status
    log: str = ""
    note: str = ""


def status_of(view: View) -> Status:
    """Return where a request stands, from its branch alone."""
    parsed = branch_names.parse_branch(view.branch)
    state = view.state
    detail = state.detail if state else ""
    if view.stands is State.REQUESTED and view.cancel:
        detail = "cancelled by the requester; a runner will confirm"
    elif view.cancel and not view.stands.is_final:
        detail = "the requester asked for a stop"
    return Status(
        branch=view.branch,
        state=view.stands,
        request=view.request,
        tip=view.tip,
        preset=parsed.preset if parsed else None,
        nonce=parsed.nonce if parsed else None,
        runner=state.runner.id if state else None,
        step=state.step if state else None,
        at=state.at if state else None,
        detail=detail,
        exit_code=int(wire.EXIT_CODES[view.stands]) if view.stands.is_final else None,
        waits_for=_waits_for(view),
    )


def mark_unsigned(git: Git, pin: Pin | None, statuses: Sequence[Status]) -> list[Status]:
    """Return the statuses; the detail of those says so that rest on a state which no pinned key signed."""
    shown = {status.branch: status.tip for status in statuses if status.runner is not None}
    if pin is None or not shown:
        return list(statuses)
    views = Reader(pin.keys).views(git, shown)
    unsigned = {branch for branch, view in views.items() if view.unsigned or not view.stated}
    return [
        replace(status, detail="; ".join(filter(None, (NOT_SIGNED, status.detail))))
        if status.branch in unsigned
        else status
        for status in statuses
    ]


def _waits_for(view: View) -> str | None:
    if view.stands.is_final:
        return None
    if view.stands.is_taken:
        return "job"
    held = view.state is not None and view.state.detail.startswith(wire.WAITS_FOR_APPROVAL)
    return "approval" if held else "runner"


def events(git: Git, view: View, seen: str | None) -> Iterator[Event]:
    """Yield what happened on a branch since the commit `seen` (None: since the request), oldest first.

    Raises RefusedError where the branch was rewritten since.
    """
    if seen is not None and not history.is_ancestor(git, seen, view.tip):
        raise RefusedError(f"{view.branch} was rewritten while it was followed", code="rewritten")
    if seen is None:
        yield Event(status_of(View(view.branch, view.request, view.request, None, None, foreign=False)))
    for commit, state, piece in history.stream(git, seen or view.request, view.tip):
        if state.branch != view.branch or state.request != view.request:
            continue
        now = View(view.branch, commit, view.request, state, None, foreign=False)
        status = status_of(now)
        if state.state.is_final:
            status = replace(status, detail=read_result(git, now).reason.message)
        gap = (
            f"\n[{state.left_out} bytes not streamed: the answer will hold the log]\n"
            if state.left_out
            else ""
        )
        yield Event(status, gap + piece.decode("utf-8", "replace"))
