"""Fetches and reads the request branches of the bus."""

from __future__ import annotations

from collections.abc import Mapping

from bridge.bus.history import RequestBranch
from bridge.common import limits
from runner.bus.reading import read_each
from runner.context import RunnerContext
from runner.serve.memory import Memory

# How many left-out branches are named one by one; the rest are only counted.
_SHOWN = 20


class Inbox:
    """The request branches of the bus. The ledger counts what is read, so that no commit kills the runner for ever."""

    def __init__(self, context: RunnerContext, memory: Memory) -> None:
        self._context = context
        self._memory = memory
        self._tips: dict[str, str] = {}
        # Commits that were read before, and commits whose handling killed an earlier process of this runner.
        self._known: set[str] = set()
        self._died = context.ledger.attempts()
        # Waiting requests without a state on their branches: there may be very many of them, poll after poll.
        self._views: dict[str, RequestBranch] = {}
        self._left_out: set[str] = set()

    def fetch(self) -> dict[str, str]:
        """Fetch new branches and return the tips of all branches, as ``Bus.fetch`` does."""
        tips = self._context.bus.fetch()
        self._tell_left_out()
        if tips is not self._tips:
            self._known &= set(tips.values())
            self._tips = tips
        return tips

    def read(self, tips: Mapping[str, str]) -> dict[str, RequestBranch]:
        """Read branches. Those that cannot be read are left out."""
        died = self._died
        views = {
            branch: view
            for branch, tip in tips.items()
            if (view := self._views.get(branch)) is not None and view.tip == tip
        }
        new = {branch: tip for branch, tip in tips.items() if branch not in views}
        views |= self._read_counted({branch: tip for branch, tip in new.items() if tip not in died})
        for branch, tip in new.items():
            if died.get(tip, 0) >= limits.CRASHES:
                self._memory.skip(branch, tip, f"this runner crashed {died[tip]} times over it")
            elif tip in died:
                views |= self._read_counted({branch: tip})
        self._memory.note_unread(new.keys() - views.keys())
        self._views = {
            branch: view for branch, view in views.items() if view.state is None and view.cancel is None
        }
        return views

    def _read_counted(self, tips: Mapping[str, str]) -> dict[str, RequestBranch]:
        """Read branches. New commits are counted before, so that the next process knows of one that kills this one."""
        context, new = self._context, set(tips.values()) - self._known
        if new:
            context.ledger.attempt(new)
        views = read_each(context.bus.git, tips, self._memory.failed, context.reader, limits.UNSIGNED_A_POLL)
        if new:
            context.ledger.survived(new)
            self._known |= new
        return views

    def _tell_left_out(self) -> None:
        """Tell the operator, once for each branch, which branches cannot be fetched and why."""
        bus = self._context.bus
        reasons = bus.quarantine.why
        new = [branch for branch in reasons if branch not in self._left_out]
        for branch in new[:_SHOWN]:
            self._context.tell(f"{branch} is left out: {reasons[branch]}")
        if len(new) > _SHOWN:
            self._context.tell(
                f"{len(new) - _SHOWN} more branches are left out; `kakeya-runner check` counts them"
            )
        self._left_out = set(reasons)
        for news in bus.listing.news():
            self._context.tell(news)
