"""What to do about each request branch: the one place where a branch's state becomes an action of this runner."""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import Enum

from bridge.bus import branch_names
from bridge.bus.history import View
from bridge.bus.wire import State
from runner.session import Session

# An observer's clock may run a little faster than the holder's.
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
    """How long each branch has been seen at the same commit, by this process's own monotonic clock.

    Clocks of two machines are never compared: a lease has lapsed when the observer itself saw nothing move for
    that long.
    """

    def __init__(self) -> None:
        self._since: dict[str, tuple[str, float]] = {}
        # Since when the state that counts has been the same, where a commit above it does not make it another one.
        self._stated: dict[str, tuple[str, float]] = {}

    def see(self, tips: Mapping[str, str]) -> None:
        """Take note of where the branches are now."""
        now = time.monotonic()
        self._since = {
            branch: held if (held := self._since.get(branch)) and held[0] == tip else (tip, now)
            for branch, tip in tips.items()
        }
        self._stated = {branch: held for branch, held in self._stated.items() if branch in tips}

    def unchanged_s(self, branch: str, stated: str | None = None) -> float:
        """Return for how many seconds the branch has not moved, as far as this process saw.

        With `stated`, the commit of the signed state that counts, it is for how long that has been the same: unsigned
        states above it neither renew a lease nor end one.
        """
        held = self._since.get(branch)
        if held and stated:
            before = self._stated.get(branch)
            held = before if before and before[0] == stated else (stated, held[1])
            self._stated[branch] = held
        return time.monotonic() - held[1] if held else 0.0


def decide(session: Session, view: View, watch: TipWatch) -> Action:  # noqa: PLR0911 - one return a row
    """Decide on one branch. This runner runs one job at a time, so a branch that it holds is one it was killed on."""
    state = view.state
    if answered_before_keys(session, view):
        return Action.NOTHING
    if state is None:
        return Action.CANCEL if view.cancel else Action.TAKE
    if state.state.is_final:
        return Action.NOTHING
    if state.state.is_taken:
        # A name can be copied or forged; what this runner wrote stands in its ledger.
        ours = in_our_name(session, view) and session.ledger.wrote(state.salt)
        lease_s = min(state.lease_s, session.policy.bus.longest_lease_s)
        if not ours and watch.unchanged_s(view.branch, view.stated) < lease_s * _MARGIN:
            return Action.WAIT
    if view.cancel:
        return Action.CANCEL
    if view.foreign:
        return Action.SUPERSEDE
    if state.state is not State.REQUESTED and view.token >= session.policy.limits.attempts:
        return Action.LOSE
    return Action.TAKE


def answered_before_keys(session: Session, view: View) -> bool:
    """Say whether an unsigned answer is left alone: this runner gave it, or its request is too old to be run.

    Answers from before `trust.runners` was set are not signed. To answer their requests again would only hide them.
    """
    if view.unsigned is None or not view.unsigned.is_final or view.stands.is_final:
        return False
    seen = session.ledger.seen(view.branch)
    if seen is not None and seen.published is not None:
        return True
    parsed = branch_names.parse_branch(view.branch)
    age_s = time.time() - branch_names.nonce_time(parsed.nonce) if parsed else 0.0
    return age_s > session.policy.limits.max_age_s and not session.clock.is_doubtful()


def in_our_name(session: Session, view: View) -> bool:
    """Say whether the last state was written under this runner's id."""
    return view.state is not None and view.state.runner.instance == session.identity.instance
