"""Chooses the request that is handled next: requesters take turns, and requests that can run come first."""

import time
from collections.abc import Callable, Sequence
from operator import attrgetter

from bridge.errors import InfrastructureError
from runner.admit.approvals import Approvals
from runner.bus.backoff import Spread
from runner.faults import explain
from runner.parts import Process
from runner.serve.dispatch import Action, Dispatcher, Waits
from runner.serve.queue import FairQueue
from runner.serve.tracked import TrackedRequest, Tracker
from runner.state.turn import NOT_YET

# How long a poll looks for a request to run, and how long it answers other requests, before the next poll.
BUDGET_S = 1.0
# How soon a request that waits for a decision is checked again.
APPROVAL_RECHECK_S = 2.0


class Scheduler:
    """Handles one request after the other. A branch whose handling fails does not stop the others."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        tracker: Tracker,
        process: Process,
        spread: Spread,
        may_take: Callable[[], bool],
    ) -> None:
        """``may_take`` returns whether the operator lets requests be taken now."""
        self._dispatcher = dispatcher
        self._tracker = tracker
        self._stop, self._heartbeat = process.stop, process.heartbeat
        self._spread = spread
        self._may_take = may_take
        self._policy, self._tell = dispatcher.policy, dispatcher.tell
        self._ledger = dispatcher.author.ledger
        self._turns = FairQueue(dispatcher.author.bus.git, self._policy, self._ledger, self._tell, spread)
        self._ran = False
        # Whether the last poll ran out of time and left work behind.
        self.has_more = False
        # The last bug that was reported, so that each is reported once.
        self._last_bug = ""

    def handle_next(self, requests: Sequence[TrackedRequest]) -> bool:
        """Handle the first request in turn that this runner can work on. Returns whether there was one."""
        ordered = self._in_turn(requests)
        # Requests that can run come first. After a job, one of the other requests has its turn, so that none starves.
        passes = (False, True, False) if self._ran else (True, False)
        self._ran = False
        for runs in passes:
            worked = self._work(ordered, runs=runs)
            if worked is not False:
                return bool(worked)
        return False

    def _in_turn(self, requests: Sequence[TrackedRequest]) -> list[TrackedRequest]:
        """Order the branches: first the answered ones, which are only recorded, then the waiting ones by turn."""
        answered: list[TrackedRequest] = []
        waiting: list[TrackedRequest] = []
        # Requests that wait for an approval or for another runner.
        blocked: set[TrackedRequest] = set()
        may_be_approved = any(request.checked_reason for request in requests)
        approved = Approvals(self._policy.state).all() if may_be_approved else {}
        for request in requests:
            try:
                branch = request.branch
                if branch.current_state.is_taken or request.is_unadmitted or request.checked_reason:
                    blocked.add(request)
                if (branch.name, branch.request) in approved and request.checked_reason:
                    request.check_again()
                (answered if branch.current_state.is_final else waiting).append(request)
            except Exception as error:  # noqa: BLE001 - whatever a stranger pushed
                self._tracker.mark_failed(request.branch.name, error)
        for request in answered:
            request.why = ""
        ordered = self._order(waiting, blocked)
        self._tracker.note_order(waiting, ordered)
        return answered + ordered

    def _order(self, waiting: list[TrackedRequest], blocked: set[TrackedRequest]) -> list[TrackedRequest]:
        """Return the waiting requests in their order. One that cannot be put in order does not stop the others."""
        try:
            return self._turns.order(waiting, blocked)
        except Exception as error:  # noqa: BLE001 - whatever a stranger pushed
            first = error
        good = []
        for request in waiting:
            try:
                self._turns.check(request)
                good.append(request)
            except Exception as error:  # noqa: BLE001
                self._tracker.mark_failed(request.branch.name, error)
        try:
            return self._turns.order(good, blocked)
        except Exception as error:  # noqa: BLE001
            # No single branch is the cause. Requests are still handled, in the order of their branch names.
            self._tell_bug(
                f"requests cannot be put in order: {explain(error if len(good) < len(waiting) else first)}"
            )
            return sorted(good, key=lambda request: request.branch.name)

    def _work(self, requests: list[TrackedRequest], *, runs: bool) -> bool | None:
        """Run the first request that is admitted or, without ``runs``, answer the first one that is not.

        Requests that were checked a moment ago are left out. If requests wait for an approval, the one that was last
        checked longest ago comes first.

        After ``BUDGET_S`` the rest is left to the next poll. Returns whether there was one, or None if the bus does
        not answer.
        """
        began = time.monotonic()
        for request in requests:
            request.why = request.checked_reason or request.why
        fits = (request for request in requests if request.is_unadmitted is not runs)
        due = [request for request in fits if began - request.checked_at >= APPROVAL_RECHECK_S]
        for i, request in enumerate(due if runs else sorted(due, key=attrgetter("checked_at"))):
            if self._stop.is_set():
                return None
            if i and time.monotonic() > began + BUDGET_S:
                self.has_more = True
                break
            self._heartbeat.touch()
            name, lost_claims = request.branch.name, self._spread.lost_claims
            try:
                is_done = self._process(request, runs=runs)
            except Exception as error:  # noqa: BLE001 - whatever a stranger pushed
                if isinstance(error, InfrastructureError) and error.code == "unreachable":
                    # Perhaps only this branch fails, so others have their turn in the next poll.
                    request.retry.failed()
                    self._tell(f"{name}: {error.message}; trying again")
                    return None
                self._tracker.mark_failed(name, error)
                continue
            if is_done:
                self._ran = runs
                self._count_turn(request)
                request.fault.succeeded()
                request.why = ""
                return True
            if self._spread.lost_claims > lost_claims:
                # Other runners have moved on since the bus was listed: list it again before the next claim.
                self.has_more = True
                break
        return False

    def _count_turn(self, request: TrackedRequest) -> None:
        try:
            self._turns.served(request)
        except Exception as error:  # noqa: BLE001 - the request is handled all the same
            self._tell_bug(f"{request.branch.name}: its turn is not counted: {explain(error)}")

    def _tell_bug(self, message: str) -> None:
        """Report a bug to the operator, unless it is the same as the last one."""
        if message != self._last_bug:
            self._last_bug = message
            self._tell(message)

    def _process(self, request: TrackedRequest, *, runs: bool) -> bool:
        """Handle one branch, and return whether it needed work. With ``runs``, only record requests that cannot run."""
        if request.branch.too_large:
            self._tracker.skip(request, request.branch.too_large)
            return False
        action, candidate = self._dispatcher.examine(request)
        if candidate is None or not self._may_take():
            return False
        # The attempt counts in the ledger, so that a request that kills the runner is not retried for ever.
        with self._ledger.attempting([request.branch.tip]):
            if not runs:
                published = self._dispatcher.apply(candidate, action)
            elif action is Action.TAKE and (admitted := self._dispatcher.try_admit(candidate)):
                published = self._dispatcher.run_in_turn(admitted)
            else:
                request.is_unadmitted = True
                return False
        if isinstance(published, Waits) and published.reason == NOT_YET:
            # It is looked at again in the next poll.
            request.why = published.reason
            return False
        if isinstance(published, Waits):
            if request.note_wait(published.reason) and published.is_news:
                self._tell(f"{request.branch.name}: {published.reason}")
            return False
        # Usually this runner or a faster one has moved the branch by now. If not, the bus drops pushes.
        request.retry.failed()
        self._tracker.mark_answered(request, published)
        return published is not None
