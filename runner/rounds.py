"""One poll after another: what is new on the bus, whose turn it is, and what is not to be looked at again."""

from __future__ import annotations

import time
from collections.abc import Mapping

from bridge import history, names
from bridge.errors import InfrastructureError
from bridge.history import View
from bridge.wire import State
from runner.decide import Action, TipWatch, decide, in_our_name
from runner.handle import flush, handle, is_for_others
from runner.patience import Patience
from runner.queue import Queue
from runner.room import why_not_writable
from runner.session import Session

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
        # When each request that waits for approval was last looked at.
        self._held: dict[str, float] = {}
        self._queue = Queue(session.bus.git, session.policy, session.ledger, session.tell)
        self._warned: set[str] = set()
        self._left_out: set[str] = set()
        # What failed, by commit: the tip that was to be handled, or the answer that was to be published.
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
        self._patience.keep({*tips.values(), *waiting.values()})
        self._watch.see(tips)
        self._settled = {branch: tip for branch, tip in self._settled.items() if tips.get(branch) == tip}
        fresh = {
            branch: tip
            for branch, tip in tips.items()
            if branch not in self._settled
            and branch not in waiting
            and names.is_safe(branch)
            and self._patience.allows(tip)
        }
        self._held = {branch: looked for branch, looked in self._held.items() if branch in fresh}
        self._why = {branch: why for branch, why in self._why.items() if branch in tips}
        self._why |= dict.fromkeys(waiting, "its answer is kept until the bus takes it")
        worked = False
        for view in self._in_turn(history.read_views(self._session.bus.git, fresh)):
            if self._session.stop.is_set():
                break
            if self._try(view):
                self._queue.served(view)
                self._why.pop(view.branch, None)
                worked = True
                break
        self._session.standing.polled({**self._why, **self._session.bus.quarantine.why})
        return worked

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
            if self._is_too_large(view):
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
            published = handle(self._session, view, action)
            if published is State.REQUESTED:
                self._held[view.branch] = time.monotonic()
                self._why[view.branch] = self._why_held(view)
                return False
        except Exception as error:
            if isinstance(error, InfrastructureError) and error.code == "unreachable":
                raise
            self._failed(view, error)
            return False
        if published is None:
            # Another runner was faster, and the branch has moved; or it cannot be pushed to now.
            self._patience.failed(view.tip)
        return published is not None

    def _is_too_large(self, view: View) -> bool:
        """Leave out a branch that holds more than is read of one."""
        if view.too_large:
            self._session.tell(f"{view.branch} is left out: {view.too_large}")
            self._settled[view.branch] = view.tip
        return bool(view.too_large)

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

    def _failed(self, view: View, error: Exception) -> None:
        """Note that a branch could not be handled. Raises InfrastructureError if the host is the cause."""
        state = self._session.policy.state
        if why := why_not_writable(state):
            message = f"cannot write to {state}: {why}. Requests wait until there is room on this disk"
            raise InfrastructureError(message, code="no_room") from error
        self._why[view.branch] = f"failed here: {error}"
        self._session.tell(f"{view.branch}: {type(error).__name__}: {error}")
        if self._patience.failed(view.tip) >= _FAILURES:
            self._session.tell(f"{view.branch}: left alone until it changes")
            self._settled[view.branch] = view.tip

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


def _held_by(view: View) -> str:
    """Say which runner holds a request."""
    state = view.state
    return (
        f"held by {state.runner.id}, for a lease of {state.lease_s:g} s"
        if state
        else "held by another runner"
    )
