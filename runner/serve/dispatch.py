"""Decides what to do about each request branch, and carries it out: run it, refuse it, close it, or let it wait."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from bridge.bus import history, objects
from bridge.bus.history import RequestBranch
from bridge.bus.wire import Reason, State
from bridge.presets import Presets
from runner.admit.admission import OF_AGE, Admitted, admit, check_alone, keeps_unsigned_answer
from runner.admit.manifests import UNFINISHED, Candidate, belongs, read_candidate
from runner.admit.trust import WAITS
from runner.bus.backoff import Retry
from runner.bus.bus import Bus, Pushed
from runner.bus.others import OtherRunners
from runner.host.clock import Clock
from runner.host.fitness import Fitness
from runner.parts import Author
from runner.policy import Policy
from runner.refusal import NeedsApproval, Refusal, Unable, with_place
from runner.serve.answer import Answers, Outcome
from runner.serve.lease import Lease, Leaving, with_reason
from runner.serve.tracked import TrackedRequest
from runner.state.heartbeat import Heartbeat
from runner.state.ledger import Ledger, Pending
from runner.state.turn import NOT_YET, Turn

UNFIT = "waits until this host can run it again"
CLOCK = "waits until this machine's clock can be trusted"
# For how long a branch may be without its manifest: two calls of a host's API create a branch and put a file on it.
UNFINISHED_S = 600.0
# How long a poll retries failed pushes of answers, so that new requests are seen meanwhile.
FLUSH_S = 5.0
# Margin for an observer whose clock runs faster than the holder's.
_MARGIN = 1.2


class Action(Enum):
    """What a runner does about a branch."""

    NOTHING = "it has its answer"
    WAIT = "another runner holds it"
    TAKE = "it is to be run"
    CANCEL = "the requester cancelled it"
    SUPERSEDE = "the requester pushed to it again"
    LOSE = "its runners were lost too often"


def decide(  # noqa: PLR0911 - one return a row
    request: TrackedRequest, policy: Policy, ledger: Ledger, clock: Clock, instance: str
) -> Action:
    """Decide on one branch. If this runner, ``instance``, already holds it, an earlier process died during that job."""
    branch, state = request.branch, request.branch.state
    if keeps_unsigned_answer(ledger, clock, policy.limits.max_age_s, branch):
        return Action.NOTHING
    if state is None:
        return Action.CANCEL if branch.cancel else Action.TAKE
    if state.state.is_final:
        return Action.NOTHING
    if state.state.is_taken:
        # The id on the bus can be forged, so the ledger decides: it lists the states that this runner wrote.
        ours = _has_id(instance, branch) and ledger.has_written(state.salt)
        lease_s = min(state.lease_s, policy.bus.longest_lease_s)
        if not ours and request.unchanged_s(branch.state_commit) < lease_s * _MARGIN:
            return Action.WAIT
    if branch.cancel:
        return Action.CANCEL
    if branch.has_foreign_commits:
        return Action.SUPERSEDE
    if state.state is not State.REQUESTED and branch.token >= policy.limits.attempts:
        return Action.LOSE
    return Action.TAKE


def _has_id(instance: str, branch: RequestBranch) -> bool:
    """Return whether the last state has this runner's id."""
    return branch.state is not None and branch.state.runner.instance == instance


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


@dataclass(frozen=True)
class Dispatcher:
    """Carries out decisions, with what that may take of this runner."""

    author: Author
    policy: Policy
    presets: Presets
    others: OtherRunners
    clock: Clock
    fitness: Fitness
    turn: Turn
    # Whether requests come over a bus.
    has_bus: bool
    answers: Answers
    leaving: Leaving
    tell: Callable[[str], None]
    # Claims an admitted request, runs it, and answers.
    run: Callable[[Admitted], State | None]

    def examine(self, request: TrackedRequest) -> tuple[Action, Candidate | None]:
        """Decide on a branch, and read its request if it needs work of this runner now; else record why not."""
        branch, git = request.branch, self.author.bus.git
        instance = self.author.identity.instance
        action = decide(request, self.policy, self.author.ledger, self.clock, instance)
        if action is Action.NOTHING:
            request.settle()
            return action, None
        if action is Action.WAIT and (state := branch.state):
            request.why = f"held by {state.runner.id}, for a lease of {state.lease_s:g} s"
            self._warn_of_double(request)
            return action, None
        candidate = read_candidate(git, branch, request.manifest)
        if action is not Action.TAKE:
            return action, candidate
        if candidate.is_unfinished and request.unchanged_s() < UNFINISHED_S:
            request.settle(time.time() + UNFINISHED_S - request.unchanged_s(), UNFINISHED)
            return action, None
        if (deadline := self._left_until(candidate)) > time.time():
            request.settle(deadline, "asks for labels that this runner lacks")
            return action, None
        return action, candidate

    def apply(self, candidate: Candidate, action: Action) -> State | Waits | None:
        """Carry out the action for a branch.

        Returns the published state; None if nothing was published; Waits if the request waits for a decision.
        """
        branch = candidate.branch
        if answered := self._kept_answer(branch):
            self.tell(f"{branch.name}: the bus lost the answer; it is published again")
            return self.answers.publish(answered, is_new=False)
        if not belongs(self.author.bus.git, branch):
            reason = Reason(code="history_rewritten", message="its request is not part of the branch")
            outcome = Outcome(State.REFUSED, reason)
            lease = Lease(self.author, replace(branch, request=branch.tip))
            return self.answers.answer_without_running(lease, None, outcome)
        if action is not Action.TAKE:
            state, code, message = _CLOSED[action]
            if action is Action.CANCEL and branch.cancel:
                message = with_reason(message, branch.cancel.reason)
            outcome = Outcome(state, Reason(code=code, message=message))
            lease = Lease(self.author, branch)
            return self.answers.answer_without_running(lease, candidate.request, outcome)
        try:
            admitted = self._admit(candidate)
        except Refusal as refusal:
            return self._turn_down(branch, refusal)
        # If this runner had left the request to others before, it failed here after the claim.
        others = self.others.has_declined(branch) and self.leaving.to_others(branch, admitted.request)
        return Waits(others, is_news=True) if others else self.run_in_turn(admitted)

    def try_admit(self, candidate: Candidate) -> Admitted | None:
        """Return a request that this runner would run now; None if it would refuse it or wait. Writes nothing."""
        branch = candidate.branch
        is_left = branch.state is not None and self.others.has_declined(branch)
        if is_left or not belongs(self.author.bus.git, branch):
            return None
        try:
            return self._admit(candidate)
        except Refusal:
            return None

    def run_in_turn(self, admitted: Admitted) -> State | Waits | None:
        """Run a request unless another runner of the same service runs one, or is next. See ``apply``."""
        with self.turn.hold() as is_held:
            return self.run(admitted) if is_held else Waits(NOT_YET)

    def _left_until(self, candidate: Candidate) -> float:
        """Return until when a request is left to runners with labels that this one lacks, in Unix seconds.

        A time in the past, if the request asks for no such labels, has expired, or came without a bus.
        """
        request = candidate.parsed
        if isinstance(request, Refusal) or not self.has_bus:
            return 0.0
        preset = self.presets.get(request.preset)
        wanted = {*(request.labels or ()), *(preset.labels if preset else ())}
        is_left = not wanted <= set(self.policy.labels) and belongs(self.author.bus.git, candidate.branch)
        return request.start_deadline if is_left else 0.0

    def _warn_of_double(self, request: TrackedRequest) -> None:
        """Warn if a claim has this runner's id but was not made by it: a copy of this runner may run elsewhere."""
        instance = self.author.identity.instance
        if _has_id(instance, request.branch) and not request.is_double_told:
            request.is_double_told = True
            self.tell(
                f"{request.branch.name} is held by another runner under this one's id, "
                f"{instance}; its lease is respected. Does a copy of this machine run? "
                "Delete the file `instance` on one of them"
            )

    def _kept_answer(self, branch: RequestBranch) -> Pending | None:
        """Return the answer that this runner pushed earlier, if the bus has lost it since."""
        record = self.author.ledger.entry(branch.name)
        if (
            record is None
            or record.published is None
            or not objects.is_commit(self.author.bus.git, record.published)
        ):
            return None
        if record.published == branch.tip or not history.is_ancestor(
            self.author.bus.git, branch.tip, record.published
        ):
            return None
        self.author.bus.protect(record.published)
        self.author.ledger.record_answer(
            branch=branch.name, state=record.state, answer=record.published, expect=branch.tip
        )
        return Pending(record.request, branch.name, record.published, branch.tip)

    def _turn_down(self, branch: RequestBranch, refusal: Refusal) -> State | Waits | None:
        """Refuse a request, or let it wait if somebody, or a corrected clock, may still change the decision."""
        if isinstance(refusal, NeedsApproval):
            # The reason is published on the branch, unless it is there already.
            is_new = branch.state is None or not branch.state.detail.startswith(WAITS)
            if (
                is_new
                and Lease(self.author, branch).advance(State.REQUESTED, detail=refusal.message) is Pushed.DONE
            ):
                self.tell(f"{branch.name}: {refusal.message}; next: kakeya-runner approve {branch.request}")
            return Waits(f"waits for approval: kakeya-runner approve {branch.request}")
        if refusal.code in OF_AGE and self.clock.is_doubtful():
            return Waits(CLOCK)
        if isinstance(refusal, Unable):
            request = refusal.request
            if request and (
                reason := self.leaving.to_others(branch, request, refusal.message, refusal.definition)
            ):
                return Waits(reason, is_news=True)
            if refusal.is_new:
                return Waits(f"{UNFIT}: {refusal.message}", is_news=True)
        name = self.author.identity.id
        message = with_place(refusal.code, refusal.message, name, has_bus=self.has_bus)
        outcome = Outcome(State.REFUSED, Reason(code=refusal.code, message=message))
        lease = Lease(self.author, branch)
        return self.answers.answer_without_running(lease, refusal.request, outcome)

    def _admit(self, candidate: Candidate) -> Admitted:
        """Admit a request. If this host lacks the interpreter, packages or models for it, say who can install them."""
        if not self.has_bus:
            check_alone(candidate, self.presets, self.policy)
        admitted = admit(self.author.bus.git, candidate, self.presets, self.policy, self.author.ledger)
        if fault := self.fitness.problem_for(admitted.preset):
            code, problem = fault
            where = f"The operator of the runner {self.author.identity.id} can fix it there"
            is_new = self.fitness.could_run_before(admitted.preset)
            raise Unable(code, f"{problem.message}. {where}: {problem.fix}", admitted.request, is_new=is_new)
        return admitted


class PendingAnswers:
    """Pushes the answers that a failure or a crash left in the ledger. A failed one is retried ever more rarely."""

    def __init__(
        self, answers: Answers, bus: Bus, ledger: Ledger, heartbeat: Heartbeat, tell: Callable[[str], None]
    ) -> None:
        self._answers = answers
        self._bus = bus
        self._ledger = ledger
        self._heartbeat = heartbeat
        self._tell = tell
        self._retries: dict[str, Retry] = {}

    def push(self) -> dict[str, str]:
        """Push what is due. Returns the remaining answers, by branch."""
        until = time.monotonic() + FLUSH_S
        for pending in self._ledger.unsent_answers():
            self._heartbeat.touch()
            # A branch that failed is retried later, so the next poll reaches the others.
            if time.monotonic() > until:
                break
            # Commits that were pushed to the branch meanwhile may take minutes to fetch: polls go on until then.
            name = pending.branch
            is_behind = self._bus.is_behind(name) or self._bus.sightings.is_overtaken(name)
            retry = self._retries.setdefault(pending.answer, Retry())
            if is_behind or not retry.is_due:
                continue
            try:
                published = self._answers.publish(pending)
            except Exception as error:  # noqa: BLE001 - one answer that fails must not stop the others
                self._tell(f"{name}: the answer waits: {type(error).__name__}: {error}")
                published = None
            if published is None:
                retry.failed()
            else:
                self._tell(f"{name}: the answer that was waiting is published")
        remaining = {pending.branch: pending.answer for pending in self._ledger.unsent_answers()}
        self._retries = {
            answer: self._retries[answer] for answer in remaining.values() if answer in self._retries
        }
        return remaining
