"""Decides what to do about each request branch: the only place where a branch's state becomes an action."""

from enum import Enum

from bridge.bus.history import RequestBranch
from bridge.bus.wire import State
from runner.admit.admission import keeps_unsigned_answer
from runner.host.clock import Clock
from runner.policy import Policy
from runner.serve.tracked import TrackedRequest
from runner.state.ledger import Ledger

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


def decide(  # noqa: PLR0911 - one return a row
    request: TrackedRequest, policy: Policy, ledger: Ledger, clock: Clock, instance: str
) -> Action:
    """Decide on one branch. If this runner, ``instance``, already holds it, an earlier process died during that job."""
    branch, state = request.branch, request.branch.state
    if keeps_unsigned_answer(ledger, clock, policy.limits.max_age_s, branch):
        return Action.NOTHING
    if state is None:
        return Action.CANCEL if branch.cancel else Action.TAKE
    if state.state.is_final:
        return Action.NOTHING
    if state.state.is_taken:
        # The id on the bus can be forged, so the ledger decides: it lists the states that this runner wrote.
        ours = has_id(instance, branch) and ledger.has_written(state.salt)
        lease_s = min(state.lease_s, policy.bus.longest_lease_s)
        if not ours and request.unchanged_s(branch.state_commit) < lease_s * _MARGIN:
            return Action.WAIT
    if branch.cancel:
        return Action.CANCEL
    if branch.has_foreign_commits:
        return Action.SUPERSEDE
    if state.state is not State.REQUESTED and branch.token >= policy.limits.attempts:
        return Action.LOSE
    return Action.TAKE


def has_id(instance: str, branch: RequestBranch) -> bool:
    """Return whether the last state has this runner's id."""
    return branch.state is not None and branch.state.runner.instance == instance
