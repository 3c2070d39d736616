"""Taking requests from the bus: one (`once`), or all that come (`serve`)."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import replace

from bridge import history, names
from bridge.errors import InfrastructureError, RefusedError
from bridge.history import View
from bridge.manifest import Request
from bridge.wire import Reason, State
from runner.answer import Outcome, publish
from runner.bus import Pushed
from runner.chores import Chores
from runner.decide import Action, TipWatch, decide, in_our_name
from runner.execute import answer_without_running, execute
from runner.intake import Admitted, admit, read_manifest, wants_another
from runner.lease import Lease
from runner.patience import Patience
from runner.queue import Queue
from runner.refusal import Held, Refusal
from runner.session import Session
from runner.trust import WAITS

_GROWTH = 1.5
_FAILURES = 3
_LONGEST_TROUBLE_S = 60.0
_HELD_S = 2.0

_CLOSED = {
    Action.CANCEL: (State.CANCELLED, "cancelled", "the requester cancelled it before it ran"),
    Action.SUPERSEDE: (State.CANCELLED, "superseded", "the branch was pushed to again"),
    Action.LOSE: (State.LOST, "lost", "the runners that took it never answered"),
}


def serve(session: Session, *, limit: int | None = None) -> int:
    """Poll the bus and handle what comes until the session is to stop or `limit` requests were handled.

    Requesters take turns. Returns how many were handled. The bus being out of reach is waited out.
    """
    shortest, longest = session.policy.bus.poll
    rounds, chores = Rounds(session), Chores(session)
    pause, handled = shortest, 0
    while not session.stop.is_set():
        try:
            worked = rounds.next()
            chores.maybe()
        except InfrastructureError as error:
            session.tell(f"{error.message}; trying again")
            pause = min(max(pause, 1.0) * 2, _LONGEST_TROUBLE_S)
            session.stop.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads polls, guards nothing
            continue
        handled += worked
        if limit is not None and handled >= limit:
            break
        pause = shortest if worked else min(pause * _GROWTH, longest)
        if not worked:
            session.stop.wait(pause * random.uniform(0.7, 1.3))  # noqa: S311 - spreads polls, guards nothing
    return handled


class Rounds:
    """Poll after poll, with what is remembered between them: nothing that a restart could not find again."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._watch = TipWatch()
        # Branches at which nothing is left to do while they stay at this commit.
        self._settled: dict[str, str] = {}
        # When each request that waits for approval was last looked at.
        self._held: dict[str, float] = {}
        self._queue = Queue(session.bus.git, session.policy, session.ledger, session.tell)
        self._warned: set[str] = set()
        self._left_out: set[str] = set()
        # What failed, by commit: the tip that was to be handled, or the answer that was to be published.
        self._patience = Patience()

    def next(self) -> bool:
        """Fetch, and handle the next request that this runner can do something about. Says whether there was one.

        Raises InfrastructureError where the bus cannot be reached.
        """
        waiting = flush(self._session, self._patience)
        tips = self._session.bus.fetch()
        self._tell_left_out()
        self._patience.keep({*tips.values(), *waiting.values()})
        self._watch.see(tips)
        self._settled = {branch: tip for branch, tip in self._settled.items() if tips.get(branch) == tip}
        fresh = {
            branch: tip
            for branch, tip in tips.items()
            if branch not in self._settled
            and branch not in waiting
            and names.is_safe(branch)
            and self._patience.allows(tip)
        }
        self._held = {branch: looked for branch, looked in self._held.items() if branch in fresh}
        for view in self._in_turn(history.read_views(self._session.bus.git, fresh)):
            if self._session.stop.is_set():
                break
            if self._try(view):
                self._queue.served(view)
                return True
        return False

    def _in_turn(self, views: Mapping[str, View]) -> list[View]:
        """Return what is new: first what is answered, of which note is taken once, then what waits, by turns."""
        answered = [view for view in views.values() if view.stands.is_final]
        return answered + self._queue.order(view for view in views.values() if not view.stands.is_final)

    def _try(self, view: View) -> bool:  # noqa: PLR0911
        """Handle one branch if there is something to do. A branch that makes this fail does not stop the others."""
        try:
            action = decide(self._session, view, self._watch)
            if action is Action.WAIT:
                self._warn_of_double(view)
                return False
            looked = self._held.get(view.branch)
            if looked and time.monotonic() - looked < _HELD_S:
                return False
            if action is Action.NOTHING or _is_for_others(self._session, view):
                self._settled[view.branch] = view.tip
                return False
            published = handle(self._session, view, action)
            if published is State.REQUESTED:
                self._held[view.branch] = time.monotonic()
                return False
        except InfrastructureError as error:
            if error.code == "unreachable":
                raise
            self._failed(view, error)
            return False
        except Exception as error:  # noqa: BLE001 - whoever may push must not be able to stop the runner
            self._failed(view, error)
            return False
        if published is None:
            # Another runner was faster, and the branch has moved; or it cannot be pushed to now.
            self._patience.failed(view.tip)
        return published is not None

    def _failed(self, view: View, error: Exception) -> None:
        self._session.tell(f"{view.branch}: {type(error).__name__}: {error}")
        if self._patience.failed(view.tip) >= _FAILURES:
            self._session.tell(f"{view.branch}: left alone until it changes")
            self._settled[view.branch] = view.tip

    def _tell_left_out(self) -> None:
        """Say once of each branch that cannot be fetched that it is left out, and why."""
        why = self._session.bus.quarantine.why
        for branch in why.keys() - self._left_out:
            self._session.tell(f"{branch} is left out: {why[branch]}")
        self._left_out = set(why)

    def _warn_of_double(self, view: View) -> None:
        """Say that a branch is held in this runner's name though it did not claim it: a copy of it runs elsewhere."""
        if in_our_name(self._session, view) and view.branch not in self._warned:
            self._warned.add(view.branch)
            self._session.tell(
                f"{view.branch} is held by another runner under this one's id, {self._session.identity.instance}; "
                "its lease is respected. Does a copy of this machine run? Delete the file `instance` on one of them"
            )


def once(session: Session, branch: str, commit: str | None = None) -> State | None:
    """Handle one branch and return the state of its answer, None where this runner did not give one.

    With `commit`, only that commit is taken as the request: a branch that has moved on is left alone.
    Raises RefusedError where the branch is not one that this runner serves or does not exist.
    """
    if not names.is_safe(branch) or not names.matches(branch, session.bus.patterns):
        patterns = ", ".join(session.bus.patterns)
        raise RefusedError(
            f"{branch!r} is not served here: the policy accepts {patterns}", code="branch_not_served"
        )
    waiting = flush(session, Patience())
    tip = session.bus.tip(branch)
    if tip is None:
        raise RefusedError(f"there is no branch {branch} on the bus", code="no_such_request")
    view = history.read_view(session.bus.git, branch, tip)
    if commit is not None and view.request != commit:
        raise RefusedError(
            f"{branch} is no longer at {commit[:12]}: its request is {view.request[:12]}", code="moved"
        )
    if view.stands.is_final:
        return view.stands
    if branch in waiting:
        raise InfrastructureError(f"the answer of {branch} cannot be pushed", fix="Try again.")
    return handle(session, view, decide(session, view, TipWatch()))


def handle(session: Session, view: View, action: Action) -> State | None:
    """Do what was decided about a branch.

    Returns the state that was published, None where nothing was, REQUESTED where the request waits for approval.
    """
    if action is Action.WAIT:
        session.tell(f"{view.branch}: another runner holds it")
        return None
    if not history.is_ancestor(session.bus.git, view.request, view.tip):
        outcome = Outcome(
            State.REFUSED, Reason(code="history_rewritten", message="its request is not part of the branch")
        )
        return answer_without_running(session, Lease(session, replace(view, request=view.tip)), None, outcome)
    if action is not Action.TAKE:
        state, code, message = _CLOSED[action]
        outcome = Outcome(state, Reason(code=code, message=message))
        return answer_without_running(session, Lease(session, view), _manifest(session, view), outcome)
    try:
        admitted = admit(session.bus.git, view, session.presets, session.policy, session.ledger)
        _check_interpreter(session, admitted)
    except Held as held:
        return hold(session, view, held)
    except Refusal as refusal:
        outcome = Outcome(State.REFUSED, Reason(code=refusal.code, message=refusal.message))
        return answer_without_running(session, Lease(session, view), refusal.request, outcome)
    return execute(session, admitted)


def _check_interpreter(session: Session, admitted: Admitted) -> None:
    problem = session.interpreter.problem_for(admitted.preset)
    if problem:
        raise Refusal("interpreter", f"{problem.message}. {problem.fix}", admitted.request)


def hold(session: Session, view: View, held: Held) -> State:
    """Leave a request waiting, and say so on its branch unless that was said already."""
    told = view.state is not None and view.state.detail.startswith(WAITS)
    if not told and Lease(session, view).advance(State.REQUESTED, detail=held.message) is Pushed.DONE:
        session.tell(f"{view.branch}: {held.message}; next: kakeya-runner approve {view.request}")
    return State.REQUESTED


def flush(session: Session, patience: Patience) -> dict[str, str]:
    """Push the answers that a failure or a crash left in the ledger. Returns what still waits, by branch."""
    for pending in session.ledger.pending():
        if not patience.allows(pending.request):
            continue
        if publish(session, pending) is not None:
            session.tell(f"{pending.branch}: the answer that was waiting is published")
        else:
            patience.failed(pending.request)
    return {pending.branch: pending.request for pending in session.ledger.pending()}


def _manifest(session: Session, view: View) -> Request | None:
    try:
        return read_manifest(session.bus.git, view)
    except Refusal:
        return None


def _is_for_others(session: Session, view: View) -> bool:
    request = _manifest(session, view)
    return request is not None and wants_another(request, session.presets, session.policy)
