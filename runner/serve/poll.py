"""Polls the bus: fetches new branches, handles the next request in turn, and reports why the others wait."""

from collections.abc import Iterable, Mapping

from bridge.common import limits
from runner.host.clock import Clock
from runner.parts import Author, Operator
from runner.serve.dispatch import CLOCK, UNFIT, PendingAnswers
from runner.serve.scheduler import Scheduler
from runner.serve.tracked import CANNOT_BEGIN, TrackedRequest, Tracker
from runner.state.forwarding import Forwarder
from runner.state.orders import OperatorMode
from runner.state.turn import Turn

_SERVE = OperatorMode()
_HOST_FAULTS = (CLOCK, CANNOT_BEGIN, UNFIT)
_UNFETCHED = "is not fetched yet: others that came with it take long"
# How many left-out branches are named one by one; the rest are only counted.
_SHOWN = 20


class Poller:
    """Polls the bus. The ledger counts attempts to read a commit, so that no commit kills the runner for ever."""

    def __init__(
        self, author: Author, operator: Operator, forwarder: Forwarder, clock: Clock, turn: Turn, tracker: Tracker,
        scheduler: Scheduler, pending: PendingAnswers,
    ) -> None:  # fmt: skip
        self._bus, self._ledger, self._reader = author.bus, author.ledger, author.keys.reader
        self._tell, self._status_file = operator.tell, operator.status_file
        self._forwarder, self._clock, self._turn = forwarder, clock, turn
        self._tracker, self._scheduler, self._pending = tracker, scheduler, pending
        # How often each commit killed an earlier process of this runner.
        self._died = self._ledger.attempts()
        # The left-out branches that the operator knows of. A branch that was never fetched has no record.
        self._left_out: dict[str, str] = {}

    @property
    def has_more(self) -> bool:
        """Whether the last poll left work behind because its time was over."""
        return self._scheduler.has_more

    def poll(self, order: OperatorMode = _SERVE) -> bool:
        """Fetch, and handle the next request that this runner can work on. Returns whether there was one.

        During maintenance or a drain, no request is taken.

        Raises:
            InfrastructureError: the bus cannot be reached.
        """
        bus, tracker = self._bus, self._tracker
        unsent = self._pending.push()
        tips = bus.fetch()
        forwarder = self._forwarder
        forwards = order.takes_requests and not forwarder.is_idle(bus.sessions)
        if forwards and forwarder.see(bus.sessions, tips):
            tips = bus.fetch()
        self._tell_left_out()
        if news := self._clock.news():
            self._tell(news)
        tracker.see(tips)
        gone = tracker.note_unsent(unsent, bus.push_fault)
        worked = self._scheduler.has_more = False
        self._turn.begin_poll()
        if not order.takes_requests:
            tracker.pause(str(order.state))
        elif not tracker.is_settled:
            due = tracker.due(unsent)
            self._read(due)
            worked = self._scheduler.handle_next([request for request in due if request.is_read])
            tracker.forget_states(due)
        self._turn.end_poll()
        self._report({**tracker.reasons(), **gone})
        return worked

    def _read(self, requests: Iterable[TrackedRequest]) -> None:
        """Read the branches that were not read yet. Branches that cannot be read stay unread."""
        new = [request for request in requests if not request.is_read]
        # All together, but each commit that killed an earlier process alone.
        batches = [[request for request in new if request.branch.tip not in self._died]]
        for request in new:
            crashes = self._died.get(request.branch.tip, 0)
            if crashes >= limits.CRASHES:
                self._tracker.skip(request, f"this runner crashed {crashes} times on it")
            elif crashes:
                batches.append([request])
        failed: list[tuple[str, Exception]] = []
        for batch in batches:
            tips = {request.branch.name: request.branch.tip for request in batch}
            # Count new commits first, so that the next process knows which commit killed this one.
            with self._ledger.attempting(
                {request.branch.tip for request in batch if not request.is_harmless}
            ):
                branches = self._reader.read_each(
                    self._bus.git, tips, lambda *failure: failed.append(failure), limits.UNSIGNED_A_POLL
                )
            for request in batch:
                request.is_harmless = True
                if branch := branches.get(request.branch.name):
                    request.branch, request.is_read = branch, True
        for failure in failed:
            self._tracker.mark_failed(*failure)
        for request in new:
            if not (request.is_read or request.settled_until or request.why):
                request.why = "its history is being read"

    def _report(self, reasons: Mapping[str, str]) -> None:
        """Publish why each request waits, and which fault of this host or of the bus keeps requests waiting, if any."""
        bus = self._bus
        unfetched = dict.fromkeys(bus.unfetched, _UNFETCHED)
        fault = next((reason for reason in reasons.values() if reason.startswith(_HOST_FAULTS)), "")
        if bus.push_fault and reasons:
            fault = f"cannot push to the bus: {bus.push_fault}"
        self._status_file.record_poll({**unfetched, **reasons, **bus.commits.reasons}, fault)

    def _tell_left_out(self) -> None:
        """Tell the operator, once for each branch, which branches cannot be fetched and why."""
        commits, tell = self._bus.commits, self._tell
        reasons = {
            name: reason for name, reason in commits.reasons.items() if not commits.may_be_on_its_way(name)
        }
        new = [branch for branch in reasons if branch not in self._left_out]
        for branch in new[:_SHOWN]:
            tell(f"{branch} is left out: {reasons[branch]}")
        if len(new) > _SHOWN:
            tell(f"{len(new) - _SHOWN} more branches are left out; `kakeya-runner check` counts them")
        self._left_out = reasons
        for news in self._bus.listing.news():
            tell(news)
