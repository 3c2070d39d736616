"""Doing what was decided about one branch: run it, refuse it, close it, or let it wait."""

from __future__ import annotations

from dataclasses import replace

from bridge.bus import history, objects
from bridge.bus.history import View
from bridge.bus.wire import Reason, State
from bridge.manifest import Request
from runner.admit.admission import OF_AGE, Admitted, admit, read_manifest, wants_another
from runner.admit.trust import WAITS
from runner.bus.backoff import Patience
from runner.bus.bus import Pushed
from runner.refusal import Held, Refusal, with_place
from runner.serve.answer import Outcome, publish
from runner.serve.execute import answer_without_running, execute
from runner.serve.lease import Lease
from runner.serve.next_action import Action
from runner.session import Session
from runner.state.ledger import Pending

_CLOSED = {
    Action.CANCEL: (State.CANCELLED, "cancelled", "the requester cancelled it before it ran"),
    Action.SUPERSEDE: (State.CANCELLED, "superseded", "the branch was pushed to again"),
    Action.LOSE: (State.LOST, "lost", "the runners that took it never answered"),
}


def handle(session: Session, view: View, action: Action) -> State | None:
    """Do what was decided about a branch.

    Returns the state that was published, None where nothing was, REQUESTED where the request waits (for approval,
    or for a clock that can be believed).
    """
    if action is Action.WAIT:
        session.tell(f"{view.branch}: another runner holds it")
        return None
    if kept := _kept_answer(session, view):
        session.tell(f"{view.branch}: the bus lost the answer; it is published again")
        return publish(session, kept)
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
        _check_host(session, admitted)
    except Refusal as refusal:
        return _turn_down(session, view, refusal)
    return execute(session, admitted)


def _kept_answer(session: Session, view: View) -> Pending | None:
    """Return the answer that was pushed already, if the bus has gone back to where it was before that."""
    seen = session.ledger.seen(view.branch)
    if seen is None or seen.published is None or not objects.is_commit(session.bus.git, seen.published):
        return None
    if seen.published == view.tip or not history.is_ancestor(session.bus.git, view.tip, seen.published):
        return None
    session.bus.keep(seen.published)
    session.ledger.answered(branch=view.branch, state=seen.state, answer=seen.published, expect=view.tip)
    return Pending(seen.request, view.branch, seen.published, view.tip)


def _turn_down(session: Session, view: View, refusal: Refusal) -> State | None:
    """Refuse a request, or let it wait where somebody, or another time of day, may still change that."""
    if isinstance(refusal, Held):
        return hold(session, view, refusal)
    if refusal.code in OF_AGE and session.clock.is_doubtful():
        return State.REQUESTED
    message = with_place(refusal.code, refusal.message, session.identity.id)
    outcome = Outcome(State.REFUSED, Reason(code=refusal.code, message=message))
    return answer_without_running(session, Lease(session, view), refusal.request, outcome)


def _check_host(session: Session, admitted: Admitted) -> None:
    """Refuse what this host lacks the interpreter, the packages or the models for, and say who can change that."""
    for code, judge in (("interpreter", session.interpreter), ("models", session.models)):
        problem = judge.problem_for(admitted.preset)
        if problem:
            where = f"The operator of the runner {session.identity.id} can mend it there"
            raise Refusal(code, f"{problem.message}. {where}: {problem.fix}", admitted.request)


def hold(session: Session, view: View, held: Held) -> State:
    """Leave a request waiting, and say so on its branch unless that was said already."""
    told = view.state is not None and view.state.detail.startswith(WAITS)
    if not told and Lease(session, view).advance(State.REQUESTED, detail=held.message) is Pushed.DONE:
        session.tell(f"{view.branch}: {held.message}; next: kakeya-runner approve {view.request}")
    return State.REQUESTED


def flush(session: Session, patience: Patience) -> dict[str, str]:
    """Push the answers that a failure or a crash left in the ledger. Returns what still waits, by branch."""
    for pending in session.ledger.pending():
        if not patience.allows(pending.answer):
            continue
        try:
            published = publish(session, pending)
        except Exception as error:  # noqa: BLE001 - one answer that fails keeps nothing else from being done
            session.tell(f"{pending.branch}: the answer waits: {type(error).__name__}: {error}")
            published = None
        if published is not None:
            session.tell(f"{pending.branch}: the answer that was waiting is published")
        else:
            patience.failed(pending.answer)
    return {pending.branch: pending.answer for pending in session.ledger.pending()}


def is_for_others(session: Session, view: View) -> bool:
    """Say whether a request asks for labels that this runner lacks."""
    request = _manifest(session, view)
    return request is not None and wants_another(request, session.presets, session.policy)


def _manifest(session: Session, view: View) -> Request | None:
    try:
        return read_manifest(session.bus.git, view)
    except Refusal:
        return None
