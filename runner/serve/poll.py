"""Polls the bus: fetches new branches, handles the next request in turn, and reports why the others wait."""

from __future__ import annotations

from runner.context import RunnerContext
from runner.serve.dispatch import UNFIT, push_pending_answers
from runner.serve.inbox import Inbox
from runner.serve.memory import CANNOT_BEGIN, CLOCK, Memory
from runner.serve.scheduler import Scheduler
from runner.state.orders import OperatorMode

_SERVE = OperatorMode()
_HOST_FAULTS = (CLOCK, CANNOT_BEGIN, UNFIT)
_UNFETCHED = "is not fetched yet: others that came with it take long"


class Poller:
    """Polls the bus, and remembers what it saw between polls."""

    def __init__(self, context: RunnerContext) -> None:
        self._context = context
        self._memory = Memory(context)
        self._inbox = Inbox(context, self._memory)
        self._scheduler = Scheduler(context, self._memory)

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
        tips = self._inbox.fetch()
        if news := context.clock.news():
            context.tell(news)
        memory.see(tips, unsent)
        worked = self._scheduler.has_more = False
        if not order.takes_requests:
            memory.pause(str(order.state))
        elif not memory.is_settled:
            worked = self._scheduler.handle_next(self._inbox.read(memory.due(unsent)).values())
        waiting = dict.fromkeys(context.bus.unfetched, _UNFETCHED)
        context.status_file.polled({**waiting, **memory.why, **context.bus.quarantine.why}, self._fault())
        return worked

    def _fault(self) -> str:
        """Return which fault of this host or of the bus keeps requests waiting; empty if none does."""
        why, push_fault = self._memory.why, self._context.bus.push_fault
        if push_fault and why:
            return f"cannot push to the bus: {push_fault}"
        return next((reason for reason in why.values() if reason.startswith(_HOST_FAULTS)), "")
