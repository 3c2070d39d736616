"""Carries out the decision about one branch: run it, refuse it, close it, or let it wait."""

import time
from dataclasses import dataclass, replace

from bridge.bus import history, objects
from bridge.bus.history import RequestBranch
from bridge.bus.wire import Reason, State
from runner.admit.admission import OF_AGE, Admitted, admit, start_deadline
from runner.admit.alone import check_alone
from runner.admit.manifests import Candidate, belongs
from runner.admit.trust import WAITS
from runner.bus.backoff import Backoff
from runner.bus.bus import Pushed
from runner.context import RunnerContext
from runner.refusal import NeedsApproval, Refusal, Unable, with_place
from runner.serve.answer import Outcome, answer_without_running, publish
from runner.serve.execute import execute
from runner.serve.lease import Lease, leave_to_others, with_reason
from runner.serve.next_action import Action
from runner.state.ledger import Pending
from runner.state.turn import NOT_YET

UNFIT = "waits until this host can run it again"
CLOCK = "waits until this machine's clock can be trusted"
# How long a poll retries failed pushes of answers, so that new requests are seen meanwhile.
FLUSH_S = 5.0

_CLOSED = {
    Action.CANCEL: (State.CANCELLED, "cancelled", "the requester cancelled it before it ran"),
    Action.SUPERSEDE: (State.CANCELLED, "superseded", "the branch was pushed to again"),
    Action.LOSE: (State.LOST, "lost", "the runners that took it never answered"),
}


@dataclass(frozen=True)
class Waits:
    """A request that is neither run nor refused now, with the reason for the operator; ``is_news``: print it."""

    reason: str
    is_news: bool = False


def try_admit(context: RunnerContext, candidate: Candidate) -> Admitted | None:
    """Return a request that this runner would run now; None if it would refuse it or let it wait. Writes nothing."""
    branch = candidate.branch
    record = context.ledger.entry(branch.name)
    has_answer = record is not None and record.published is not None
    is_left = branch.state is not None and context.others.has_declined(branch)
    if has_answer or is_left or not belongs(context.bus.git, branch):
        return None
    try:
        return _admit(context, candidate)
    except Refusal:
        return None


def apply(
    context: RunnerContext, candidate: Candidate, action: Action, admitted: Admitted | None = None
) -> State | Waits | None:
    """Carry out the action for a branch, with the request that ``try_admit`` returned, if any.

    Returns the published state; None if nothing was published; Waits if the request waits for a decision.
    """
    branch = candidate.branch
    if action is Action.WAIT:
        context.operator.tell(f"{branch.name}: another runner holds it")
        return None
    if answered := _kept_answer(context, branch):
        context.operator.tell(f"{branch.name}: the bus lost the answer; it is published again")
        return publish(context, answered, is_new=False)
    if not belongs(context.bus.git, branch):
        reason = Reason(code="history_rewritten", message="its request is not part of the branch")
        outcome = Outcome(State.REFUSED, reason)
        return answer_without_running(
            context, Lease(context, replace(branch, request=branch.tip)), None, outcome
        )
    if action is not Action.TAKE:
        state, code, message = _CLOSED[action]
        message = with_reason(message, branch.cancel if action is Action.CANCEL else None)
        outcome = Outcome(state, Reason(code=code, message=message))
        return answer_without_running(context, Lease(context, branch), candidate.request, outcome)
    try:
        admitted = admitted or _admit(context, candidate)
    except Refusal as refusal:
        return _turn_down(context, branch, refusal)
    # If this runner had left the request to others before, it failed here after the claim.
    others = context.others.has_declined(branch) and leave_to_others(context, branch, admitted.request)
    return Waits(others, is_news=True) if others else _execute_in_turn(context, admitted)


def _execute_in_turn(context: RunnerContext, admitted: Admitted) -> State | Waits | None:
    """Run a request unless another runner of the same service runs one, or is next."""
    with context.turn.hold() as is_held:
        return execute(context, admitted) if is_held else Waits(NOT_YET)


def _kept_answer(context: RunnerContext, branch: RequestBranch) -> Pending | None:
    """Return the answer that this runner pushed earlier, if the bus has lost it since."""
    record = context.ledger.entry(branch.name)
    if record is None or record.published is None or not objects.is_commit(context.bus.git, record.published):
        return None
    if record.published == branch.tip or not history.is_ancestor(
        context.bus.git, branch.tip, record.published
    ):
        return None
    context.bus.protect(record.published)
    context.ledger.record_answer(
        branch=branch.name, state=record.state, answer=record.published, expect=branch.tip
    )
    return Pending(record.request, branch.name, record.published, branch.tip)


def _turn_down(context: RunnerContext, branch: RequestBranch, refusal: Refusal) -> State | Waits | None:
    """Refuse a request, or let it wait if somebody, or a corrected clock, may still change the decision."""
    if isinstance(refusal, NeedsApproval):
        # The reason is published on the branch, unless it is there already.
        is_new = branch.state is None or not branch.state.detail.startswith(WAITS)
        if is_new and Lease(context, branch).advance(State.REQUESTED, detail=refusal.message) is Pushed.DONE:
            context.operator.tell(
                f"{branch.name}: {refusal.message}; next: kakeya-runner approve {branch.request}"
            )
        return Waits(f"waits for approval: kakeya-runner approve {branch.request}")
    if refusal.code in OF_AGE and context.clock.is_doubtful():
        return Waits(CLOCK)
    if isinstance(refusal, Unable):
        request = refusal.request
        if request and (
            reason := leave_to_others(context, branch, request, refusal.message, refusal.definition)
        ):
            return Waits(reason, is_news=True)
        if refusal.is_new:
            return Waits(f"{UNFIT}: {refusal.message}", is_news=True)
    message = with_place(refusal.code, refusal.message, context.identity.id)
    outcome = Outcome(State.REFUSED, Reason(code=refusal.code, message=message))
    return answer_without_running(context, Lease(context, branch), refusal.request, outcome)


def _admit(context: RunnerContext, candidate: Candidate) -> Admitted:
    """Admit a request. If this host lacks the interpreter, packages or models for it, say who can install them."""
    if not context.has_bus:
        check_alone(candidate, context.presets, context.policy)
    admitted = admit(context.bus.git, candidate, context.presets, context.policy, context.ledger)
    if fault := context.machine.fitness.problem_for(admitted.preset):
        code, problem = fault
        where = f"The operator of the runner {context.identity.id} can fix it there"
        is_new = context.machine.fitness.could_run_before(admitted.preset)
        raise Unable(code, f"{problem.message}. {where}: {problem.fix}", admitted.request, is_new=is_new)
    return admitted


def push_pending_answers(context: RunnerContext, backoff: Backoff) -> dict[str, str]:
    """Push the answers that a failure or a crash left in the ledger. Returns the remaining ones, by branch."""
    until = time.monotonic() + FLUSH_S
    for pending in context.ledger.unsent_answers():
        context.process.heartbeat.touch()
        # A branch that failed is retried later, so the next poll reaches the others.
        if time.monotonic() > until:
            break
        # Commits that were pushed to the branch meanwhile may take minutes to fetch; polls go on until they are here.
        is_behind = context.bus.is_behind(pending.branch) or context.bus.sightings.is_overtaken(
            pending.branch
        )
        if is_behind or not backoff.allows(pending.answer):
            continue
        try:
            published = publish(context, pending)
        except Exception as error:  # noqa: BLE001 - one answer that fails must not stop the others
            context.operator.tell(f"{pending.branch}: the answer waits: {type(error).__name__}: {error}")
            published = None
        if published is None:
            backoff.failed(pending.answer)
        else:
            context.operator.tell(f"{pending.branch}: the answer that was waiting is published")
    return {pending.branch: pending.answer for pending in context.ledger.unsent_answers()}


def is_for_others(context: RunnerContext, candidate: Candidate) -> bool:
    """Return whether a request asks for labels that this runner lacks, and has not expired."""
    request = candidate.request
    if request is None or start_deadline(request) < time.time():
        return False
    preset = context.presets.get(request.preset)
    wanted = {*(request.labels or ()), *(preset.labels if preset else ())}
    return not wanted <= set(context.policy.labels) and belongs(context.bus.git, candidate.branch)
