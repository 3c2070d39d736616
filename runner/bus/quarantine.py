"""Branches that are left out of fetches, so that one bad branch does not hide the others.

A fetch succeeds for all its branches or for none. Two kinds of branches make it fail: those with objects that git's
checks or our limits refuse, for which a retry is useless, and those that the bus cannot send completely. Results are
kept by commit, so a thousand branches at one commit are checked once.
"""

from collections.abc import Mapping

from bridge.errors import InfrastructureError
from runner.bus.backoff import Backoff

HOSTILE = "hostile_objects"


class Quarantine:
    """The branches that are left out, and why."""

    def __init__(self) -> None:
        self._listed: Mapping[str, str] = {}
        self._hostile: dict[str, str] = {}
        self._unreadable: dict[str, str] = {}
        self._backoff = Backoff()

    @property
    def reasons(self) -> dict[str, str]:
        """Why each branch is left out, as text for the operator."""
        known = self._unreadable | self._hostile
        return {b: known[commit] for b, commit in self._listed.items() if commit in known} if known else {}

    @property
    def unreadable_count(self) -> int:
        """How many commits are left out only for a while."""
        return len(self._unreadable)

    @property
    def hostile_count(self) -> int:
        """How many branches are left out for good."""
        return sum(commit in self._hostile for commit in self._listed.values())

    def put(self, commit: str, error: InfrastructureError) -> None:
        """Leave out every branch at a commit: for ever if the commit is refused, otherwise for a while."""
        if error.code == HOSTILE:
            self._hostile[commit] = error.message
        else:
            self._backoff.failed(commit)
            self._unreadable[commit] = f"{error.message}; trying again"

    def has_refused_objects(self, branch: str) -> bool:
        """Return whether the branch's commit is refused."""
        return self._listed.get(branch) in self._hostile

    def holds(self, commit: str) -> bool:
        """Return whether a commit must not be fetched now."""
        return commit in self._hostile or (commit in self._unreadable and not self._backoff.allows(commit))

    def failures(self, commit: str) -> int:
        """Return how often a commit could not be fetched."""
        return self._backoff.failures(commit)

    def release(self, commits: set[str]) -> None:
        """Record that commits were fetched after all."""
        self._unreadable = {c: reason for c, reason in self._unreadable.items() if c not in commits}

    def retry_missing(self) -> None:
        """Retry all missing commits at once, as if for the first time."""
        self._unreadable = {}
        self._backoff.forget_all_but(())

    def see(self, listed: Mapping[str, str]) -> None:
        """Record the current tips, and forget commits that are no longer a tip."""
        self._listed, there = listed, set(listed.values())
        self._hostile = {c: reason for c, reason in self._hostile.items() if c in there}
        self._unreadable = {c: reason for c, reason in self._unreadable.items() if c in there}
        self._backoff.forget_all_but(self._unreadable)
