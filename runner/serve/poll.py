"""Polls the bus: finds new branches, handles the next request in turn, and skips branches that need no more work."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping

from bridge.bus.history import View
from bridge.bus.wire import State
from bridge.common import limits
from bridge.errors import InfrastructureError
from runner.admit.admission import ends_at
from runner.admit.approvals import Approvals
from runner.admit.manifests import Candidate, Manifests
from runner.bus.backoff import Backoff
from runner.bus.reading import read_each
from runner.context import RunnerContext
from runner.faults import explain
from runner.host.disk_space import why_not_writable
from runner.serve.dispatch import UNFIT, admit_to_run, flush, handle, is_for_others
from runner.serve.execute import NOT_BEGUN
from runner.serve.next_action import Action, TipWatch, decide, in_our_name
from runner.serve.queue import Turns
from runner.state.ledger import Ledger
from runner.state.orders import Order

_SERVE = Order()
_FAILURES = 3
_LONGEST_FAULT_S = 600.0
_CLOCK = "waits until this machine's clock can be trusted"
_NOT_BEGUN = "cannot be begun here"
_HOST_FAULTS = (_CLOCK, _NOT_BEGUN, UNFIT)
APPROVAL_RECHECK_S = 2.0
# How long a poll looks for a request to run, and how long it answers others, before the next poll sees new ones.
BUDGET_S = 1.0
_UNFETCHED = "is not fetched yet: others that came with it take long"
# How many left-out branches are named one by one; the rest are only counted.
_TOLD = 20


class Poller:
    """Polls the bus, and remembers what it saw between polls. A restarted runner finds all of it again on the bus."""

    def __init__(self, context: RunnerContext) -> None:
        self._context = context
        self._watch = TipWatch()
        # Branches that need no work while their tip is this commit.
        self._settled: dict[str, str] = {}
        self._tips: dict[str, str] = {}
        # Commits that were read before, and commits whose handling killed an earlier process of this runner.
        self._known: set[str] = set()
        self._died = context.ledger.attempts()
        # Waiting requests without a state on their branches: there may be very many of them, poll after poll.
        self._views: dict[str, View] = {}
        # When each request that waits for approval, or for another runner, was last checked, and why it waits.
        self._held: dict[str, tuple[float, str]] = {}
        self._manifests = Manifests(context.bus.git)
        self._turns = Turns(self._manifests, context.bus.git, context.policy, context.ledger, context.tell)
        # Requests, by branch and tip, that were not admitted: they are turned down after others have had their turn.
        self._unadmitted: set[str] = set()
        self._ran = False
        # Whether the last poll left work behind because its time was over.
        self.has_more = False
        # When requests for runners with other labels expire, which any runner then says.
        self._ends: dict[str, float] = {}
        self._warned: set[str] = set()
        self._left_out: set[str] = set()
        # Back-off for failures, by branch and tip, or by answer.
        self._backoff = Backoff()
        # Branches that this process has answered, and back-off for those that it answers again and again.
        self._answered: set[str] = set()
        self._again = Backoff()
        # Back-off for those that this host could not handle.
        self._faults = Backoff(_LONGEST_FAULT_S)
        # Why each unanswered request waits, as text for the operator.
        self._why: dict[str, str] = {}

    def poll(self, order: Order = _SERVE) -> bool:
        """Fetch, and handle the next request that this runner can work on. Returns whether there was one.

        During maintenance or a drain, no request is taken.

        Raises:
            InfrastructureError: the bus cannot be reached.
        """
        self.has_more = False
        waiting = flush(self._context, self._backoff)
        tips = self._context.bus.fetch()
        self._tell_left_out()
        if news := self._context.clock.news():
            self._context.tell(news)
        if tips is not self._tips:
            self._watch.see(tips)
            self._settled = {branch: tip for branch, tip in self._settled.items() if tips.get(branch) == tip}
            self._ends = {branch: ends for branch, ends in self._ends.items() if branch in self._settled}
            self._known &= set(tips.values())
            self._tips = tips
        self._backoff.keep({*(_at(*each) for each in tips.items()), *waiting.values()})
        self._answered &= tips.keys()
        self._again.keep(tips)
        self._faults.keep(tips)
        self._why = {branch: reason for branch, reason in self._why.items() if branch in tips}
        bus = self._context.bus
        unsent = f"its answer is kept until the bus takes it: {bus.push_fault}" if waiting else ""
        self._why |= dict.fromkeys(waiting, unsent)
        for branch in [branch for branch, ends in self._ends.items() if ends < time.time()]:
            del self._ends[branch]
            self._settled.pop(branch, None)
        worked = False
        if not order.takes_requests:
            waits = dict.fromkeys(
                (branch for branch in tips if branch not in self._settled), str(order.state)
            )
            self._why = {**waits, **self._why}
        elif len(self._settled) < len(tips):
            worked = self._handle_next(tips, waiting)
        self._context.status_file.polled(
            {**dict.fromkeys(bus.unfetched, _UNFETCHED), **self._why, **bus.quarantine.why}, self._fault()
        )
        return worked

    def _fault(self) -> str:
        """Return which fault of this host or of the bus keeps requests waiting; empty if none does."""
        if self._context.bus.push_fault and self._why:
            return f"cannot push to the bus: {self._context.bus.push_fault}"
        return next((reason for reason in self._why.values() if reason.startswith(_HOST_FAULTS)), "")

    def _handle_next(self, tips: Mapping[str, str], waiting: Container[str]) -> bool:
        """Handle the first request in turn that this runner can work on. Returns whether there was one."""
        fresh = {
            branch: tip
            for branch, tip in tips.items()
            if branch not in self._settled
            and branch not in waiting
            and self._backoff.allows(_at(branch, tip))
            and self._again.allows(branch)
            and self._faults.allows(branch)
        }
        self._held = {branch: pause for branch, pause in self._held.items() if branch in fresh}
        self._unadmitted &= {_at(*tip) for tip in fresh.items()}
        views = self._in_turn(self._read(fresh))
        self._recall_approved(views)
        # What runs comes first. After a job, one of the others has its turn, so that they are not left for ever.
        passes = (False, True, False) if self._ran else (True, False)
        self._ran = False
        for runs in passes:
            worked = self._work(views, runs=runs)
            if worked is not False:
                return bool(worked)
        return False

    def _recall_approved(self, views: list[View]) -> None:
        """Look again at once at requests that were approved since they were turned down."""
        if not self._unadmitted:
            return
        approved = Approvals(self._context.policy.state).all()
        for view in views:
            if (view.branch, view.request) in approved and view.branch in self._held:
                self._unadmitted.discard(_at(view.branch, view.tip))
                del self._held[view.branch]

    def _work(self, views: list[View], *, runs: bool) -> bool | None:
        """Run the first request that is admitted or, without ``runs``, answer the first one that is not.

        After ``BUDGET_S`` the rest is left to the next poll. Returns whether there was one, or None if the bus does
        not answer.
        """
        until = time.monotonic() + BUDGET_S
        chosen = self._due(views, runs=runs)
        if not runs:
            # Those that wait for an approval stand behind, the one first that was not looked at for longest.
            chosen.sort(key=lambda view: self._held.get(view.branch, (0.0, ""))[0])
        for i, view in enumerate(chosen):
            if self._context.stop.is_set():
                return None
            if i and time.monotonic() > until:
                self.has_more = True
                break
            self._context.pulse.beat()
            try:
                done = self._try(view, runs=runs)
            except InfrastructureError as error:
                if error.code == "no_room":
                    raise
                # Either the bus is out of reach, or only this branch fails: others have their turn in the next poll.
                self._backoff.failed(_at(view.branch, view.tip))
                self._context.tell(f"{view.branch}: {error.message}; trying again")
                return None
            except Exception as error:  # noqa: BLE001 - whatever a stranger pushed
                self._failed(view.branch, error)
                continue
            if done:
                self._faults.succeeded(view.branch)
                self._ran = runs
                self._note_turn(view)
                self._why.pop(view.branch, None)
                return True
        return False

    def _read(self, fresh: Mapping[str, str]) -> dict[str, View]:
        """Read branches. The ledger counts new commits first, so that one that kills the runner is known later."""
        ledger = self._context.ledger
        died = self._died
        views = {
            branch: view
            for branch, tip in fresh.items()
            if (view := self._views.get(branch)) is not None and view.tip == tip
        }
        new = {branch: tip for branch, tip in fresh.items() if branch not in views}
        views |= self._read_noted({branch: tip for branch, tip in new.items() if tip not in died}, ledger)
        for branch, tip in new.items():
            if died.get(tip, 0) >= limits.CRASHES:
                self._leave(branch, tip, f"this runner died {died[tip]} times over it")
            elif tip in died:
                views |= self._read_noted({branch: tip}, ledger)
        for branch in new.keys() - views.keys() - self._settled.keys():
            self._why.setdefault(branch, "its history is being read")
        self._views = {
            branch: view for branch, view in views.items() if view.state is None and view.cancel is None
        }
        return views

    def _read_noted(self, fresh: Mapping[str, str], ledger: Ledger) -> dict[str, View]:
        new = set(fresh.values()) - self._known
        if new:
            ledger.attempt(new)
        context, commits = self._context, limits.UNSIGNED_A_POLL
        views = read_each(context.bus.git, fresh, self._unreadable, context.reader, commits)
        if new:
            ledger.survived(new)
            self._known |= new
        return views

    def _unreadable(self, branch: str, error: Exception) -> None:
        self._failed(branch, error)

    def _leave(self, branch: str, tip: str, reason: str) -> None:
        """Skip a branch until its tip changes."""
        self._settled[branch] = tip
        self._context.tell(f"{branch} is left out: {reason}")

    def _in_turn(self, views: Mapping[str, View]) -> list[View]:
        """Order the branches: first the answered ones, which are only recorded, then the waiting ones by turn."""
        answered: list[View] = []
        waiting: list[View] = []
        for view in views.values():
            try:
                (answered if view.stands.is_final else waiting).append(view)
            except Exception as error:  # noqa: BLE001 - whatever a stranger pushed
                self._failed(view.branch, error)
        for view in answered:
            self._why.pop(view.branch, None)
        ordered = self._order(waiting)
        turns = dict.fromkeys((view.branch for view in ordered), "waits for its turn")
        share = "its requester has used up their share: limits.per_requester"
        rest = {view.branch: share for view in waiting if view.branch not in turns}
        # The dictionary keeps the order of turns.
        known = {
            branch: reason
            for branch, reason in self._why.items()
            if branch not in turns and branch not in rest
        }
        self._why = {**turns, **rest, **known}
        return answered + ordered

    def _order(self, waiting: list[View]) -> list[View]:
        """Return the waiting requests in their order. One that cannot be put in order does not stop the others."""
        try:
            return self._turns.order(waiting)
        except Exception as error:  # noqa: BLE001 - whatever a stranger pushed
            first = error
        good = []
        for view in waiting:
            try:
                self._turns.place(view)
                good.append(view)
            except Exception as error:  # noqa: BLE001
                self._failed(view.branch, error)
        try:
            return self._turns.order(good)
        except Exception as error:  # noqa: BLE001
            # Nobody in particular is the cause. Requests are still handled, by the names of their branches.
            self._tell_bug("requests cannot be put in order", error if len(good) < len(waiting) else first)
            return sorted(good, key=lambda view: view.branch)

    def _note_turn(self, view: View) -> None:
        try:
            self._turns.served(view)
        except Exception as error:  # noqa: BLE001 - the request is handled all the same
            self._tell_bug(f"{view.branch}: its turn is not counted", error)

    def _tell_bug(self, subject: str, error: Exception) -> None:
        message = f"{subject}: {explain(error)}"
        if message not in self._warned:
            self._warned.add(message)
            self._context.tell(message)

    def _try(self, view: View, *, runs: bool) -> bool:  # noqa: PLR0911
        """Handle one branch if it needs work. A branch whose handling fails does not stop the others.

        With ``runs``, only note it if it is not to be run.
        """
        try:
            if view.too_large:
                self._leave(view.branch, view.tip, view.too_large)
                return False
            action = decide(self._context, view, self._watch)
            if self._waits(view, action):
                return False
            candidate = self._manifests.of(view)
            if action is Action.TAKE and is_for_others(self._context, candidate):
                self._settled[view.branch] = view.tip
                self._ends[view.branch] = ends_at(candidate.demand())
                self._why[view.branch] = "asks for labels that this runner lacks"
                return False
            if not self._context.obey().takes_requests:
                return False
            published = self._handle(candidate, action, runs=runs)
            if runs and _at(view.branch, view.tip) in self._unadmitted:
                return False
            if published is State.REQUESTED:
                self._note_wait(view)
                return False
        except Exception as error:
            if isinstance(error, InfrastructureError) and error.code == "unreachable":
                raise
            self._failed(view.branch, error)
            return False
        # Usually this runner or a faster one has moved the branch now. If not, the bus drops pushes: back off.
        self._backoff.failed(_at(view.branch, view.tip))
        self._note_answer(view.branch, published)
        return published is not None

    def _waits(self, view: View, action: Action) -> bool:
        """Return whether there is nothing to do about a branch now, and note why."""
        if action is Action.WAIT:
            self._why[view.branch] = _held_by(view)
            self._warn_of_double(view)
            return True
        if action is Action.NOTHING:
            self._settled[view.branch] = view.tip
            return True
        return False

    def _note_answer(self, branch: str, published: State | None) -> None:
        """Back off if a branch needs one answer after another: the bus may write what is pushed to it elsewhere."""
        if published is None or not published.is_final:
            return
        if branch not in self._answered:
            self._answered.add(branch)
        elif self._again.failed(branch) == _FAILURES:
            self._context.tell(
                f"{branch} needs one answer after another, so it is looked at less often: does somebody push to it "
                "again and again, or is it another name of a branch on the bus?"
            )

    def _handle(self, candidate: Candidate, action: Action, *, runs: bool) -> State | None:
        """Carry out the action. The ledger counts it first: a request that kills the runner is not retried for ever."""
        ledger, tip = self._context.ledger, candidate.view.tip
        ledger.attempt([tip])
        try:
            admitted = admit_to_run(self._context, candidate) if runs and action is Action.TAKE else None
            if runs and admitted is None:
                self._unadmitted.add(_at(candidate.view.branch, tip))
                return None
            return handle(self._context, candidate, action, admitted)
        finally:
            ledger.survived([tip])

    def _due(self, views: list[View], *, runs: bool) -> list[View]:
        """Return the requests that may run or, without ``runs``, the others; none that was held a moment ago."""
        due = []
        for view in views:
            if (_at(view.branch, view.tip) in self._unadmitted) is runs:
                continue
            try:
                if not self._was_just_held(view):
                    due.append(view)
            except Exception as error:  # noqa: BLE001 - one branch does not stop the others
                self._failed(view.branch, error)
        return due

    def _was_just_held(self, view: View) -> bool:
        """Return whether a request waits for a decision and was checked a moment ago."""
        if view.branch not in self._held:
            return False
        looked, self._why[view.branch] = self._held[view.branch]
        return time.monotonic() - looked < APPROVAL_RECHECK_S

    def _note_wait(self, view: View) -> None:
        """Record why a request waits, and tell the operator if it is left to another runner."""
        reason = self._context.waits.pop(view.branch, None)
        if reason and self._held.get(view.branch, (0.0, ""))[1] != reason:
            self._context.tell(f"{view.branch}: {reason}")
        if reason is None and self._context.clock.is_doubtful():
            reason = _CLOCK
        reason = reason or f"waits for approval: kakeya-runner approve {view.request}"
        self._held[view.branch] = time.monotonic(), reason
        self._why[view.branch] = reason

    def _failed(self, branch: str, error: Exception) -> None:
        """Record that a branch could not be handled. It is never given up: the cause may be a fault of this host.

        Raises:
            InfrastructureError: the host's disk is the cause.
        """
        state = self._context.policy.state
        if reason := why_not_writable(state):
            message = f"cannot write to {state}: {reason}. Requests wait until there is room on this disk"
            raise InfrastructureError(message, code="no_room") from error
        is_ours = isinstance(error, InfrastructureError) and error.code == NOT_BEGUN
        self._why[branch] = f"{_NOT_BEGUN if is_ours else 'failed here'}: {error}"
        self._context.tell(f"{branch}: {type(error).__name__}: {error}")
        # By the branch, because a request that was handed back is at another commit.
        if self._faults.failed(branch) == _FAILURES:
            self._context.tell(f"{branch}: tried less and less often from now on")

    def _tell_left_out(self) -> None:
        """Tell the operator, once for each branch, which branches cannot be fetched and why."""
        bus = self._context.bus
        reasons = bus.quarantine.why
        new = [branch for branch in reasons if branch not in self._left_out]
        for branch in new[:_TOLD]:
            self._context.tell(f"{branch} is left out: {reasons[branch]}")
        if len(new) > _TOLD:
            self._context.tell(
                f"{len(new) - _TOLD} more branches are left out; `kakeya-runner check` counts them"
            )
        self._left_out = set(reasons)
        for news in bus.listing.news():
            self._context.tell(news)

    def _warn_of_double(self, view: View) -> None:
        """Warn if a claim has this runner's id but was not made by it: a copy of this runner may run elsewhere."""
        if in_our_name(self._context, view) and view.branch not in self._warned:
            self._warned.add(view.branch)
            self._context.tell(
                f"{view.branch} is held by another runner under this one's id, {self._context.identity.instance}; "
                "its lease is respected. Does a copy of this machine run? Delete the file `instance` on one of them"
            )


def _at(branch: str, tip: str) -> str:
    """Return the key of a branch at a commit. The commit alone is not enough: anyone can push a second branch to it."""
    return f"{branch} {tip}"


def _held_by(view: View) -> str:
    """Describe which runner holds a request."""
    state = view.state
    return (
        f"held by {state.runner.id}, for a lease of {state.lease_s:g} s"
        if state
        else "held by another runner"
    )
