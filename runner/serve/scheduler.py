"""Chooses the request that is handled next: requesters take turns, and requests that can run come first."""

import time
from collections.abc import Iterable
from operator import itemgetter

from bridge.bus import wire
from bridge.bus.history import RequestBranch
from bridge.bus.wire import State
from bridge.errors import InfrastructureError
from runner.admit.admission import start_deadline
from runner.admit.approvals import Approvals
from runner.admit.manifests import Candidate, Manifests, is_unfinished
from runner.context import RunnerContext
from runner.serve.dispatch import apply, is_for_others, try_admit
from runner.serve.memory import Memory, request_key
from runner.serve.next_action import Action, decide, has_our_id
from runner.serve.queue import FairQueue

# How long a poll looks for a request to run, and how long it answers other requests, before the next poll.
BUDGET_S = 1.0
# For how long a branch may be without its manifest: two calls of a host's API create a branch and put a file on it.
UNFINISHED_S = 600.0


class Scheduler:
    """Handles one request after the other. A branch whose handling fails does not stop the others."""

    def __init__(self, context: RunnerContext, memory: Memory) -> None:
        self._context = context
        self._memory = memory
        git = context.bus.git
        self._manifests = Manifests(git)
        self._turns = FairQueue(self._manifests, git, context.policy, context.ledger, context.tell)
        self._ran = False
        # Whether the last poll ran out of time and left work behind.
        self.has_more = False

    def handle_next(self, branches: Iterable[RequestBranch]) -> bool:
        """Handle the first request in turn that this runner can work on. Returns whether there was one."""
        ordered = self._in_turn(branches)
        self._memory.recall(ordered, Approvals(self._context.policy.state).all())
        # Requests that can run come first. After a job, one of the other requests has its turn, so that none starves.
        passes = (False, True, False) if self._ran else (True, False)
        self._ran = False
        for runs in passes:
            worked = self._work(ordered, runs=runs)
            if worked is not False:
                return bool(worked)
        return False

    def _in_turn(self, branches: Iterable[RequestBranch]) -> list[RequestBranch]:
        """Order the branches: first the answered ones, which are only recorded, then the waiting ones by turn."""
        answered: list[RequestBranch] = []
        waiting: list[RequestBranch] = []
        # They wait for an approval or for another runner.
        blocked: set[str] = set()
        for branch in branches:
            try:
                if branch.current_state.is_taken or self._memory.is_held_back(branch):
                    blocked.add(branch.name)
                (answered if branch.current_state.is_final else waiting).append(branch)
            except Exception as error:  # noqa: BLE001 - whatever a stranger pushed
                self._memory.mark_failed(branch.name, error)
        for branch in answered:
            self._memory.why.pop(branch.name, None)
        ordered = self._order(waiting, blocked)
        self._memory.note_order(waiting, ordered)
        return answered + ordered

    def _order(self, waiting: list[RequestBranch], blocked: set[str]) -> list[RequestBranch]:
        """Return the waiting requests in their order. One that cannot be put in order does not stop the others."""
        try:
            return self._turns.order(waiting, blocked)
        except Exception as error:  # noqa: BLE001 - whatever a stranger pushed
            first = error
        good = []
        for branch in waiting:
            try:
                self._turns.check(branch)
                good.append(branch)
            except Exception as error:  # noqa: BLE001
                self._memory.mark_failed(branch.name, error)
        try:
            return self._turns.order(good, blocked)
        except Exception as error:  # noqa: BLE001
            # No single branch is the cause. Requests are still handled, in the order of their branch names.
            cause = error if len(good) < len(waiting) else first
            self._memory.tell_bug("requests cannot be put in order", cause)
            return sorted(good, key=lambda branch: branch.name)

    def _work(self, branches: list[RequestBranch], *, runs: bool) -> bool | None:
        """Run the first request that is admitted or, without ``runs``, answer the first one that is not.

        After ``BUDGET_S`` the rest is left to the next poll. Returns whether there was one, or None if the bus does
        not answer.
        """
        until = time.monotonic() + BUDGET_S
        for i, branch in enumerate(self._due(branches, runs=runs)):
            if self._context.stop.is_set():
                return None
            if i and time.monotonic() > until:
                self.has_more = True
                break
            self._context.heartbeat.touch()
            try:
                done = self._process(branch, runs=runs)
            except Exception as error:  # noqa: BLE001 - whatever a stranger pushed
                if isinstance(error, InfrastructureError) and error.code == "unreachable":
                    # Perhaps only this branch fails: others have their turn in the next poll.
                    self._memory.back_off(branch)
                    self._context.tell(f"{branch.name}: {error.message}; trying again")
                    return None
                self._memory.mark_failed(branch.name, error)
                continue
            if done:
                self._ran = runs
                self._note_turn(branch)
                self._memory.mark_handled(branch.name)
                return True
        return False

    def _due(self, branches: list[RequestBranch], *, runs: bool) -> list[RequestBranch]:
        """Return the requests that may run or, without ``runs``, the others that were not checked a moment ago."""
        due: list[tuple[float, RequestBranch]] = []
        for branch in branches:
            try:
                if self._is_unadmitted(branch) is not runs and not self._memory.was_just_checked(branch):
                    # Those that wait for an approval stand behind, the one first that was not checked for longest.
                    due.append((0.0 if runs else self._memory.checked_at(branch), branch))
            except Exception as error:  # noqa: BLE001 - one branch does not stop the others
                self._memory.mark_failed(branch.name, error)
        return [branch for _, branch in sorted(due, key=itemgetter(0))]

    def _is_unadmitted(self, branch: RequestBranch) -> bool:
        return request_key(branch.name, branch.tip) in self._memory.unadmitted

    def _note_turn(self, branch: RequestBranch) -> None:
        try:
            self._turns.served(branch)
        except Exception as error:  # noqa: BLE001 - the request is handled all the same
            self._memory.tell_bug(f"{branch.name}: its turn is not counted", error)

    def _process(self, branch: RequestBranch, *, runs: bool) -> bool:
        """Handle one branch, and return whether it needed work. With ``runs``, only record requests that cannot run."""
        candidate, action = self._candidate(branch)
        if candidate is None or not self._context.update_operator_mode().takes_requests:
            return False
        published = self._handle(candidate, action, runs=runs)
        if runs and self._is_unadmitted(branch):
            return False
        if published is State.REQUESTED:
            self._memory.note_wait(branch)
            return False
        # Usually this runner or a faster one has moved the branch by now. If not, the bus drops pushes.
        self._memory.back_off(branch)
        self._memory.mark_answered(branch.name, published)
        return published is not None

    def _candidate(self, branch: RequestBranch) -> tuple[Candidate | None, Action]:
        """Return a request that needs work, with the action. For others, record why they need none."""
        if branch.too_large:
            self._memory.skip(branch.name, branch.tip, branch.too_large)
            return None, Action.NOTHING
        action = decide(self._context, branch, self._memory.watch)
        if action is Action.NOTHING:
            self._memory.settle(branch)
            return None, action
        if action is Action.WAIT and (state := branch.state):
            self._memory.why[branch.name] = f"held by {state.runner.id}, for a lease of {state.lease_s:g} s"
            self._warn_of_double(branch)
            return None, action
        candidate = self._manifests.of(branch)
        remaining_s = UNFINISHED_S - self._memory.watch.unchanged_s(branch.name)
        if action is Action.TAKE and remaining_s > 0 and is_unfinished(self._context.bus.git, candidate):
            self._memory.settle(branch, time.time() + remaining_s, f"waits for its file {wire.REQUEST}")
            return None, action
        if action is Action.TAKE and is_for_others(self._context, candidate):
            self._memory.settle(
                branch, start_deadline(candidate.require_request()), "asks for labels that this runner lacks"
            )
            return None, action
        return candidate, action

    def _handle(self, candidate: Candidate, action: Action, *, runs: bool) -> State | None:
        """Carry out the action. The ledger counts it first: a request that kills the runner is not retried for ever."""
        ledger, tip = self._context.ledger, candidate.branch.tip
        ledger.record_attempt([tip])
        try:
            admitted = try_admit(self._context, candidate) if runs and action is Action.TAKE else None
            if runs and admitted is None:
                self._memory.unadmitted.add(request_key(candidate.branch.name, tip))
                return None
            return apply(self._context, candidate, action, admitted)
        finally:
            ledger.clear_attempts([tip])

    def _warn_of_double(self, branch: RequestBranch) -> None:
        """Warn if a claim has this runner's id but was not made by it: a copy of this runner may run elsewhere."""
        if has_our_id(self._context, branch):
            message = (
                f"{branch.name} is held by another runner under this one's id, {self._context.identity.instance}; "
                "its lease is respected. Does a copy of this machine run? Delete the file `instance` on one of them"
            )
            self._memory.tell_once(branch.name, message)
