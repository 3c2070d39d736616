"""Decides what to do about each request branch: the only place where a branch's state becomes an action."""

import time
from collections.abc import Mapping
from enum import Enum

from bridge.bus.history import RequestBranch
from bridge.bus.wire import State
from runner.admit.admission import keeps_unsigned_answer
from runner.context import RunnerContext

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


class TipWatch:
    """Measures how long each branch has stayed at the same commit, by this process's monotonic clock.

    The clocks of two machines are never compared. A lease has lapsed if this process itself has seen no movement for
    the length of the lease.
    """

    def __init__(self) -> None:
        self._since: dict[str, tuple[str, float]] = {}
        # Since when each branch has had the same last state that counts. Other commits do not restart this time.
        self._stated: dict[str, tuple[str, float]] = {}

    def see(self, tips: Mapping[str, str]) -> None:
        """Record the current tips."""
        now = time.monotonic()
        self._since = {
            branch: since if (since := self._since.get(branch)) and since[0] == tip else (tip, now)
            for branch, tip in tips.items()
        }
        self._stated = {branch: since for branch, since in self._stated.items() if branch in tips}

    def unchanged_s(self, branch: str, state_commit: str | None = None) -> float:
        """Return for how many seconds this process has seen the branch at the same commit.

        With ``state_commit`` (the commit of the last signed state), return for how long that state has been the last
        one: unsigned states on top of it neither renew nor end a lease.
        """
        since = self._since.get(branch)
        if since and state_commit:
            before = self._stated.get(branch)
            since = before if before and before[0] == state_commit else (state_commit, since[1])
            self._stated[branch] = since
        return time.monotonic() - since[1] if since else 0.0


def decide(context: RunnerContext, branch: RequestBranch, watch: TipWatch) -> Action:  # noqa: PLR0911 - one return a row
    """Decide on one branch. If this runner already holds it, an earlier process died during that job."""
    state = branch.state
    if keeps_unsigned_answer(context, branch):
        return Action.NOTHING
    if state is None:
        return Action.CANCEL if branch.cancel else Action.TAKE
    if state.state.is_final:
        return Action.NOTHING
    if state.state.is_taken:
        # The id on the bus can be forged, so the ledger decides: it lists the states that this runner wrote.
        ours = has_our_id(context, branch) and context.ledger.has_written(state.salt)
        lease_s = min(state.lease_s, context.policy.bus.longest_lease_s)
        if not ours and watch.unchanged_s(branch.name, branch.state_commit) < lease_s * _MARGIN:
            return Action.WAIT
    if branch.cancel:
        return Action.CANCEL
    if branch.has_foreign_commits:
        return Action.SUPERSEDE
    if state.state is not State.REQUESTED and branch.token >= context.policy.limits.attempts:
        return Action.LOSE
    return Action.TAKE


def has_our_id(context: RunnerContext, branch: RequestBranch) -> bool:
    """Return whether the last state has this runner's id."""
    return branch.state is not None and branch.state.runner.instance == context.identity.instance
