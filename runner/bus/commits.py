"""Records about the commits at the tips of the bus's branches, so that one bad commit does not hide others.

A fetch succeeds for all its branches or for none. Two kinds of commits make it fail: those with objects that git's
checks or our limits refuse, for which a retry is useless, and those that the bus cannot send completely. A thousand
branches at one commit have one record. The record of a commit that is no tip any more is dropped.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import count

from bridge.errors import InfrastructureError
from runner.bus.backoff import Retry

HOSTILE = "hostile_objects"


class Stage(Enum):
    """Where a commit is that is not usable yet."""

    # The commit is in a batch that could not be fetched: smaller batches show which commits are bad or slow.
    SUSPECT = "suspect"
    # The commit is fetched, but its history waits to be read.
    QUEUED = "queued"
    # The commit's history is long, so a thread reads it beside the polls.
    LONG = "long"


@dataclass(eq=False, slots=True)
class CommitState:
    """One commit."""

    stage: Stage | None = None
    # The commit's place among those of the same stage.
    turn: int = 0
    # Why the commit is left out: refused for good, or missing until it is fetched after all.
    refused: str = ""
    missing: str = ""
    retry: Retry = field(default_factory=Retry)


class Commits:
    """The commits at the tips of the bus that have a record."""

    def __init__(self) -> None:
        self._tips: Mapping[str, str] = {}
        self._states: dict[str, CommitState] = {}
        self._turns = count()

    def see(self, tips: Mapping[str, str]) -> None:
        """Record the current tips, and forget commits that are no longer a tip, or about which nothing is known."""
        self._tips, there = tips, set(tips.values())
        known = {oid: state for oid, state in self._states.items() if oid in there}
        self._states = {
            oid: state for oid, state in known.items() if state.stage or state.refused or state.missing
        }

    def at_stage(self, *stages: Stage) -> list[str]:
        """Return the commits at these stages, in their order."""
        states = ((state.turn, oid) for oid, state in self._states.items() if state.stage in stages)
        return [oid for _, oid in sorted(states)]

    def set_stage(self, commits: Iterable[str], stage: Stage | None) -> None:
        """Put commits at a stage, behind those that are there."""
        for oid in commits:
            state = self._states.get(oid)
            if state is None and stage:
                state = self._states[oid] = CommitState()
            if state and state.stage is not stage:
                state.stage, state.turn = stage, next(self._turns)

    @property
    def reasons(self) -> dict[str, str]:
        """Why each branch is left out, as text for the operator."""
        known = {oid: state.refused or state.missing for oid, state in self._states.items()}
        return (
            {branch: reason for branch, oid in self._tips.items() if (reason := known.get(oid))}
            if known
            else {}
        )

    @property
    def missing_count(self) -> int:
        """How many commits are left out only for a while."""
        return sum(bool(state.missing) for state in self._states.values())

    @property
    def hostile_count(self) -> int:
        """How many branches are left out for good."""
        return sum(map(self.has_refused_objects, self._tips))

    def leave_out(self, commit: str, error: InfrastructureError) -> None:
        """Leave out every branch at a commit: for ever if the commit is refused, otherwise for a while."""
        state = self._states.setdefault(commit, CommitState())
        if error.code == HOSTILE:
            state.refused = error.message
        else:
            state.missing = f"{error.message}; trying again"
            state.retry.failed()

    def may_be_on_its_way(self, branch: str) -> bool:
        """Return whether a branch is left out only because one copy of the bus lags behind another one."""
        state = self._states.get(self._tips.get(branch, ""))
        return state is not None and "not our ref" in state.missing and state.retry.failures == 1

    def has_refused_objects(self, branch: str) -> bool:
        """Return whether the branch's commit is refused."""
        state = self._states.get(self._tips.get(branch, ""))
        return state is not None and bool(state.refused)

    def holds(self, commit: str) -> bool:
        """Return whether a commit must not be fetched now."""
        state = self._states.get(commit)
        return state is not None and bool(state.refused or (state.missing and not state.retry.is_due))

    def failures(self, commit: str) -> int:
        """Return how often a commit could not be fetched."""
        return self._states[commit].retry.failures if commit in self._states else 0

    def release(self, commits: Collection[str]) -> None:
        """Record that commits were fetched after all."""
        for oid in commits:
            if state := self._states.get(oid):
                state.missing = ""

    def retry_missing(self) -> None:
        """Retry all missing commits at once, as if for the first time."""
        for state in self._states.values():
            state.missing = ""
            state.retry.succeeded()
