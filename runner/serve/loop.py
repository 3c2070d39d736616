"""Serves requests from the bus: one by name (``once``), or all that arrive (``serve``)."""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bridge.bus import branch_names, objects, wire
from bridge.bus.presence import RunnerState
from bridge.bus.wire import State
from bridge.errors import InfrastructureError, KakeyaError, RefusedError, VerificationError
from bridge.system.git import NETWORK_TIMEOUT, Git
from bridge.verify.check import verify
from bridge.verify.export import Fetched, write_answer
from runner.context import RunnerContext
from runner.faults import explain
from runner.parts import Operator
from runner.serve.compose import Composer
from runner.serve.dispatch import Action, PendingAnswers, Waits
from runner.serve.tracked import TrackedRequest
from runner.state.announcer import Announcer

PAUSE_GROWTH = 1.5
LONGEST_TROUBLE_S = 60.0


def serve(context: RunnerContext, *, limit: int | None = None) -> int:
    """Poll the bus and handle requests until the runner is told to stop or has handled ``limit`` requests.

    Requesters take turns. While the bus cannot be reached, polling is retried. Returns how many requests were handled.

    Raises:
        InfrastructureError: this process may not go on, as ``Health.check`` says.
    """
    box = context.machine.sandbox
    context.operator.status_file.set_serving(
        serving=True,
        sandbox={"kind": box.kind, "why": box.why},
        key=context.keys.public[0].short if context.keys.signer else None,
        id=context.identity.id,
        bus=context.bus.url,
        turns=str(context.turn.folder) if context.is_one_of_several else None,
    )
    context.operator.orders.begin()
    context.announcer.begin()
    # Announce this runner before its first request, so that others do not refuse requests that only it can
    # run.
    context.announcer.announce_if_due()
    try:
        return _serve(context, Composer(context), limit)
    finally:
        context.operator.status_file.set_serving(serving=False)
        context.announcer.end()


def _serve(context: RunnerContext, compose: Composer, limit: int | None) -> int:
    shortest, longest = context.policy.bus.poll
    poller, chores = compose.poller(), compose.chores()
    pause, handled = shortest, 0
    while not context.process.stop.is_set():
        context.process.heartbeat.touch()
        context.process.health.check()
        try:
            order = context.update_operator_mode()
            if order.state is RunnerState.DRAINING:
                _drain(compose.pending_answers(), context.operator.tell)
                break
            worked = poller.poll(order)
            _announce(context.announcer, context.operator)
            chores.run_if_due()
        except Exception as error:  # noqa: BLE001 - a bug that one branch reaches must not end the service for all
            if context.process.stop.is_set():
                break
            context.bus.is_suspect = True
            context.operator.tell(f"{explain(error)}; trying again")
            context.operator.status_file.record_failure(explain(error))
            _announce(context.announcer, context.operator)
            pause = min(max(pause, 1.0) * 2, LONGEST_TROUBLE_S)
            context.process.stop.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads polls, guards nothing
            continue
        handled += worked
        if limit is not None and handled >= limit:
            break
        is_busy = worked or poller.has_more
        pause = shortest if is_busy or context.turn.is_awaited else min(pause * PAUSE_GROWTH, longest)
        if not is_busy:
            context.process.stop.wait(pause * random.uniform(0.7, 1.3))  # noqa: S311 - spreads polls, guards nothing
    return handled


def _drain(pending: PendingAnswers, tell: Callable[[str], None]) -> None:
    unsent = pending.push()
    later = f"; {len(unsent)} answers are pushed at the next start" if unsent else ""
    tell(f"drained: no job is running, and no other request is taken{later}")


def _announce(announcer: Announcer, operator: Operator) -> None:
    """Publish in the runner's record what keeps this runner from working, if anything does."""
    announcer.set_fault(operator.status_file.trouble)
    announcer.announce_if_due()
    if news := announcer.news():
        operator.tell(news)


def once(context: RunnerContext, name: str, commit: str | None = None) -> State | None:
    """Handle one branch and return the state of its answer as it is shown, or None if this runner did not answer.

    With ``commit``, only that commit is accepted as the request: a branch with another request is left alone.

    Raises:
        RefusedError: this runner does not serve the branch or the branch does not exist.
    """
    if not branch_names.is_safe(name) or not branch_names.matches(name, context.bus.request_patterns):
        message = f"{name!r} is not served here: the policy accepts {', '.join(context.bus.request_patterns)}"
        raise RefusedError(message, code="branch_not_served")
    order = context.update_operator_mode()
    if not order.takes_requests:
        known = f"this runner is in {order.state}: {order.reason}"
        sentence = known if order.reason else f"it is in {order.state}"
        fix = "On its machine: kakeya-runner maintenance off"
        raise InfrastructureError(sentence, fix=fix, code="maintenance")
    compose = Composer(context)
    waiting = compose.pending_answers().push()
    bus = context.bus
    tip = bus.tip_with(name, commit) if commit else bus.tip(name, NETWORK_TIMEOUT)
    if tip is None:
        raise RefusedError(f"there is no branch {name} on the bus", code="no_such_request")
    branch = context.keys.reader.read_branch(context.bus.git, name, tip)
    if branch.too_large:
        raise RefusedError(f"{name} cannot be read: {branch.too_large}", code="too_large")
    if commit is not None and branch.request != commit:
        message = f"{name} is no longer at {commit[:12]}: its request is {branch.request[:12]}"
        raise RefusedError(message, code="moved")
    dispatcher, request = compose.dispatcher(), TrackedRequest(branch, is_read=True)
    action, candidate = dispatcher.examine(request)
    if action is Action.NOTHING:
        # An answer from before the policy listed keys is not signed.
        return (
            _shown(context.bus.git, tip, branch.current_state)
            if branch.current_state.is_final
            else branch.unsigned
        )
    if name in waiting:
        raise InfrastructureError(f"the answer of {name} cannot be pushed", fix="Try again.")
    if candidate is None:
        context.operator.tell(f"{name}: {request.why}")
        return None
    # A job of this machine that came without this bus may be running.
    with context.turn.hold_later(
        context.process.stop.wait, lambda why: context.operator.tell(f"{name}: {why}")
    ):
        published = dispatcher.apply(candidate, action)
    compose.notes().push_if_due()
    if isinstance(published, Waits):
        context.operator.tell(f"{name}: {published.reason}")
        published = State.REQUESTED
    record = context.ledger.entry(name)
    return _shown(context.bus.git, record.published if record else None, published)


def _shown(git: Git, answer: str | None, state: State | None) -> State | None:
    """Return the shown state of an answer, given by its commit. An unreadable answer keeps ``state``."""
    if answer is not None and state is State.GATE_REJECTED:
        with suppress(InfrastructureError, VerificationError):
            blob = objects.read_blob(git, answer, wire.RESULT, max_bytes=wire.MAX_RESULT)
            return wire.parse_result(blob).shown_state
    return state


def write_results(context: RunnerContext, name: str, folder: Path) -> Fetched | None:
    """Write a branch's answer into a folder. Returns None if there is none.

    Raises:
        VerificationError: the answer does not hold.
    """
    tip = context.bus.tip(name)
    branch = context.keys.reader.read_branch(context.bus.git, name, tip) if tip else None
    if branch is None or not branch.current_state.is_final:
        return None
    report = verify(context.bus.git, branch, context.presets)
    return write_answer(context.bus.git, branch, report, folder)


def keep_results(context: RunnerContext, name: str, folder: Path) -> None:
    """Write a branch's answer into a folder if it verifies. A failure is only reported: the answer is on the bus."""
    try:
        write_results(context, name, folder)
    except (KakeyaError, OSError) as error:
        context.operator.tell(f"{name}: its results were not written to {folder}: {error}")
