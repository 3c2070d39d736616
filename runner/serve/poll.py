"""Polls the bus: fetches new branches, handles the next request in turn, and reports why the others wait."""

from collections.abc import Mapping

from bridge.bus.history import RequestBranch
from bridge.common import limits
from runner.bus.bus import read_each
from runner.context import RunnerContext
from runner.serve.dispatch import UNFIT, push_pending_answers
from runner.serve.memory import CANNOT_BEGIN, CLOCK, Memory
from runner.serve.scheduler import Scheduler
from runner.state.orders import OperatorMode

_SERVE = OperatorMode()
_HOST_FAULTS = (CLOCK, CANNOT_BEGIN, UNFIT)
_UNFETCHED = "is not fetched yet: others that came with it take long"
# How many left-out branches are named one by one; the rest are only counted.
_SHOWN = 20


class Poller:
    """Polls the bus. The ledger counts attempts to read a commit, so that no commit kills the runner for ever."""

    def __init__(self, context: RunnerContext) -> None:
        self._context = context
        self._memory = Memory(context)
        self._scheduler = Scheduler(context, self._memory)
        # Commits that the last poll read, and commits that killed an earlier process of this runner.
        self._known: set[str] = set()
        self._died = context.ledger.attempts()
        # A cache of waiting requests without a state on their branches, because each poll may see very many of them.
        self._views: dict[str, RequestBranch] = {}
        self._left_out: set[str] = set()

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
        context, memory = self._context, self._memory
        unsent = push_pending_answers(context, memory.retries)
        tips = context.bus.fetch()
        self._tell_left_out()
        if news := context.clock.news():
            context.tell(news)
        memory.see(tips, unsent)
        worked = self._scheduler.has_more = False
        if not order.takes_requests:
            memory.pause(str(order.state))
        elif not memory.is_settled:
            worked = self._scheduler.handle_next(self._read(memory.due(unsent)).values())
        waiting = dict.fromkeys(context.bus.unfetched, _UNFETCHED)
        context.status_file.record_poll(
            {**waiting, **memory.why, **context.bus.quarantine.reasons}, self._fault()
        )
        return worked

    def _read(self, tips: Mapping[str, str]) -> dict[str, RequestBranch]:
        """Read branches. Those that cannot be read are left out."""
        died = self._died
        branches = {name: branch for name, branch in self._views.items() if tips.get(name) == branch.tip}
        new = {name: tip for name, tip in tips.items() if name not in branches}
        branches |= self._read_counted({name: tip for name, tip in new.items() if tip not in died})
        for name, tip in new.items():
            if died.get(tip, 0) >= limits.CRASHES:
                self._memory.skip(name, tip, f"this runner crashed {died[tip]} times over it")
            elif tip in died:
                branches |= self._read_counted({name: tip})
        self._memory.note_unread(new.keys() - branches.keys())
        self._known = set(tips.values())
        self._views = {
            name: branch for name, branch in branches.items() if not (branch.state or branch.cancel)
        }
        return branches

    def _read_counted(self, tips: Mapping[str, str]) -> dict[str, RequestBranch]:
        """Read branches. New commits are counted before, so that the next process knows of one that kills this one."""
        context, new = self._context, set(tips.values()) - self._known
        if new:
            context.ledger.record_attempt(new)
        branches = read_each(
            context.bus.git, tips, self._memory.mark_failed, context.reader, limits.UNSIGNED_A_POLL
        )
        if new:
            context.ledger.clear_attempts(new)
        return branches

    def _tell_left_out(self) -> None:
        """Tell the operator, once for each branch, which branches cannot be fetched and why."""
        bus, tell = self._context.bus, self._context.tell
        reasons = bus.quarantine.reasons
        new = [branch for branch in reasons if branch not in self._left_out]
        for branch in new[:_SHOWN]:
            tell(f"{branch} is left out: {reasons[branch]}")
        if len(new) > _SHOWN:
            tell(f"{len(new) - _SHOWN} more branches are left out; `kakeya-runner check` counts them")
        self._left_out = set(reasons)
        for news in bus.listing.news():
            tell(news)

    def _fault(self) -> str:
        """Return which fault of this host or of the bus keeps requests waiting; empty if none does."""
        why, push_fault = self._memory.why, self._context.bus.push_fault
        if push_fault and why:
            return f"cannot push to the bus: {push_fault}"
        return next((reason for reason in why.values() if reason.startswith(_HOST_FAULTS)), "")
