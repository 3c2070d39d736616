"""One poll after another: what is new on the bus, whose turn it is, and what is not to be looked at again."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping

from bridge import limits
from bridge.bus.history import View
from bridge.bus.wire import State
from bridge.errors import InfrastructureError
from runner.bus.backoff import Patience
from runner.bus.reading import read_each
from runner.host.disk_space import why_not_writable
from runner.serve.dispatch import flush, handle, is_for_others
from runner.serve.next_action import Action, TipWatch, decide, in_our_name
from runner.serve.turns import Queue
from runner.session import Session
from runner.state.ledger import Ledger

_FAILURES = 3
_HELD_S = 2.0
# Of so many branches that are left out each is named; a flood of them is counted.
_TOLD = 20


class Rounds:
    """Poll after poll, with what is remembered between them: nothing that a restart could not find again."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._watch = TipWatch()
        # Branches at which nothing is left to do while they stay at this commit.
        self._settled: dict[str, str] = {}
        self._tips: dict[str, str] = {}
        # Commits that were read before, and those over which an earlier process of this runner died.
        self._known: set[str] = set()
        self._died = session.ledger.attempts()
        # When each request that waits for approval was last looked at.
        self._held: dict[str, float] = {}
        self._queue = Queue(session.bus.git, session.policy, session.ledger, session.tell)
        self._warned: set[str] = set()
        self._left_out: set[str] = set()
        # What failed: a branch at the tip that was to be handled, or the answer that was to be published.
        self._patience = Patience()
        # Why each request that is not answered waits, in words for the operator.
        self._why: dict[str, str] = {}

    def next(self) -> bool:
        """Fetch, and handle the next request that this runner can do something about. Says whether there was one.

        Raises InfrastructureError where the bus cannot be reached.
        """
        waiting = flush(self._session, self._patience)
        tips = self._session.bus.fetch()
        self._tell_left_out()
        if news := self._session.clock.news():
            self._session.tell(news)
        if tips is not self._tips:
            self._watch.see(tips)
            self._settled = {branch: tip for branch, tip in self._settled.items() if tips.get(branch) == tip}
            self._known &= set(tips.values())
            self._tips = tips
        self._patience.keep({*(_at(*one) for one in tips.items()), *waiting.values()})
        self._why = {branch: why for branch, why in self._why.items() if branch in tips}
        self._why |= dict.fromkeys(waiting, "its answer is kept until the bus takes it")
        worked = len(self._settled) < len(tips) and self._handle_next(tips, waiting)
        self._session.standing.polled({**self._why, **self._session.bus.quarantine.why})
        return worked

    def _handle_next(self, tips: Mapping[str, str], waiting: Container[str]) -> bool:
        """Handle the first request in turn that this runner can do something about. Says whether there was one."""
        fresh = {
            branch: tip
            for branch, tip in tips.items()
            if branch not in self._settled
            and branch not in waiting
            and self._patience.allows(_at(branch, tip))
        }
        self._held = {branch: looked for branch, looked in self._held.items() if branch in fresh}
        for view in self._in_turn(self._read(fresh)):
            if self._session.stop.is_set():
                break
            try:
                done = self._try(view)
            except InfrastructureError as error:
                if error.code == "no_room":
                    raise
                # The bus is away, or only this branch: then the others have their turn in the next poll.
                self._patience.failed(_at(view.branch, view.tip))
                self._session.tell(f"{view.branch}: {error.message}; trying again")
                break
            if done:
                self._queue.served(view)
                self._why.pop(view.branch, None)
                return True
        return False

    def _read(self, fresh: Mapping[str, str]) -> dict[str, View]:
        """Read branches. What was never read before is noted first: a runner that dies over it has counted it."""
        ledger = self._session.ledger
        died = self._died
        together = {branch: tip for branch, tip in fresh.items() if tip not in died}
        views = self._read_noted(together, ledger)
        for branch, tip in fresh.items():
            if died.get(tip, 0) >= limits.CRASHES:
                self._leave(branch, tip, f"this runner died {died[tip]} times over it")
            elif tip in died:
                views |= self._read_noted({branch: tip}, ledger)
        return views

    def _read_noted(self, fresh: Mapping[str, str], ledger: Ledger) -> dict[str, View]:
        new = set(fresh.values()) - self._known
        if new:
            ledger.attempt(new)
        views = read_each(self._session.bus.git, fresh, self._unreadable, self._session.reader)
        if new:
            ledger.survived(new)
            self._known |= new
        return views

    def _unreadable(self, branch: str, error: Exception) -> None:
        self._failed(branch, self._tips[branch], error)

    def _leave(self, branch: str, tip: str, why: str) -> None:
        """Leave a branch alone for as long as it stays where it is."""
        self._settled[branch] = tip
        self._session.tell(f"{branch} is left out: {why}")

    def _in_turn(self, views: Mapping[str, View]) -> list[View]:
        """Return what is new: first what is answered, of which note is taken once, then what waits, by turns."""
        answered = [view for view in views.values() if view.stands.is_final]
        waiting = [view for view in views.values() if not view.stands.is_final]
        for view in answered:
            self._why.pop(view.branch, None)
        ordered = self._queue.order(waiting)
        turns = dict.fromkeys((view.branch for view in ordered), "waits for its turn")
        share = "its requester has used up their share: limits.per_requester"
        rest = {view.branch: share for view in waiting if view.branch not in turns}
        # In the order of their turns, which a dictionary keeps.
        known = {
            branch: why for branch, why in self._why.items() if branch not in turns and branch not in rest
        }
        self._why = {**turns, **rest, **known}
        return answered + ordered

    def _try(self, view: View) -> bool:  # noqa: PLR0911
        """Handle one branch if there is something to do. A branch that makes this fail does not stop the others."""
        try:
            if view.too_large:
                self._leave(view.branch, view.tip, view.too_large)
                return False
            action = decide(self._session, view, self._watch)
            if action is Action.WAIT:
                self._why[view.branch] = _held_by(view)
                self._warn_of_double(view)
                return False
            if self._was_just_held(view):
                return False
            if action is Action.NOTHING or is_for_others(self._session, view):
                self._settled[view.branch] = view.tip
                if action is not Action.NOTHING:
                    self._why[view.branch] = "asks for labels that this runner lacks"
                return False
            published = self._handle(view, action)
            if published is State.REQUESTED:
                self._held[view.branch] = time.monotonic()
                self._why[view.branch] = self._why_held(view)
                return False
        except Exception as error:
            if isinstance(error, InfrastructureError) and error.code == "unreachable":
                raise
            self._failed(view.branch, view.tip, error)
            return False
        # Mostly the branch has moved now, by this runner or a faster one. If it has not, the bus drops what is pushed.
        self._patience.failed(_at(view.branch, view.tip))
        return published is not None

    def _handle(self, view: View, action: Action) -> State | None:
        """Do what was decided, and note first that it is being done: what kills the runner is not done for ever."""
        ledger = self._session.ledger
        ledger.attempt([view.tip])
        try:
            return handle(self._session, view, action)
        finally:
            ledger.survived([view.tip])

    def _was_just_held(self, view: View) -> bool:
        """Say whether a request waits for approval and was looked at a moment ago."""
        looked = self._held.get(view.branch)
        if looked is None:
            return False
        self._why[view.branch] = self._why_held(view)
        return time.monotonic() - looked < _HELD_S

    def _why_held(self, view: View) -> str:
        if self._session.clock.is_doubtful():
            return "waits until this machine's clock can be trusted"
        return f"waits for approval: kakeya-runner approve {view.request}"

    def _failed(self, branch: str, tip: str, error: Exception) -> None:
        """Note that a branch could not be handled. Raises InfrastructureError if the host is the cause."""
        state = self._session.policy.state
        if why := why_not_writable(state):
            message = f"cannot write to {state}: {why}. Requests wait until there is room on this disk"
            raise InfrastructureError(message, code="no_room") from error
        self._why[branch] = f"failed here: {error}"
        self._session.tell(f"{branch}: {type(error).__name__}: {error}")
        if self._patience.failed(_at(branch, tip)) >= _FAILURES:
            self._session.tell(f"{branch}: left alone until it changes")
            self._settled[branch] = tip

    def _tell_left_out(self) -> None:
        """Say once of each branch that cannot be fetched that it is left out, and why."""
        bus = self._session.bus
        why = bus.quarantine.why
        new = [branch for branch in why if branch not in self._left_out]
        for branch in new[:_TOLD]:
            self._session.tell(f"{branch} is left out: {why[branch]}")
        if len(new) > _TOLD:
            self._session.tell(
                f"{len(new) - _TOLD} more branches are left out; `kakeya-runner check` counts them"
            )
        self._left_out = set(why)
        for news in bus.listing.news():
            self._session.tell(news)

    def _warn_of_double(self, view: View) -> None:
        """Say that a branch is held in this runner's name though it did not claim it: a copy of it runs elsewhere."""
        if in_our_name(self._session, view) and view.branch not in self._warned:
            self._warned.add(view.branch)
            self._session.tell(
                f"{view.branch} is held by another runner under this one's id, {self._session.identity.instance}; "
                "its lease is respected. Does a copy of this machine run? Delete the file `instance` on one of them"
            )


def _at(branch: str, tip: str) -> str:
    """Name a branch at a commit. Anyone can put a second branch at the same commit, which has its own failures."""
    return f"{branch} {tip}"


def _held_by(view: View) -> str:
    """Say which runner holds a request."""
    state = view.state
    return (
        f"held by {state.runner.id}, for a lease of {state.lease_s:g} s"
        if state
        else "held by another runner"
    )
