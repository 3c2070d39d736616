"""Branches that are left out of a fetch, so that one that cannot be had does not keep the others from being seen.

Git fetches all that it is asked for, or nothing. Two kinds stand in the way: objects that git's checks or our limits
refuse, which no retry changes, and objects that the bus cannot send whole, because its disk or the way to it damages
them. What is known is known of a commit: a thousand branches at one commit are looked at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from bridge.errors import InfrastructureError
from runner.bus.backoff import Patience

HOSTILE = "hostile_objects"


class Quarantine:
    """Which branches are left out, and why."""

    def __init__(self) -> None:
        self._why: dict[str, str] | None = {}
        self._listed: Mapping[str, str] = {}
        self._hostile: dict[str, str] = {}
        self._unreadable: dict[str, str] = {}
        # When to ask again for those that the bus could not send.
        self._patience = Patience()

    @property
    def why(self) -> dict[str, str]:
        """Why each branch that is left out is, in words for the operator."""
        if self._why is None:
            known = self._unreadable | self._hostile
            listed = self._listed.items() if known else ()
            self._why = {branch: known[commit] for branch, commit in listed if commit in known}
        return self._why

    @property
    def unreadable(self) -> int:
        """How many commits are left out for a while only."""
        return len(self._unreadable)

    def put(self, commit: str, error: InfrastructureError) -> None:
        """Leave out every branch that is at a commit: for good where it is refused, else for a while."""
        if error.code == HOSTILE:
            self._hostile[commit] = error.message
        else:
            self._patience.failed(commit)
            self._unreadable[commit] = f"{error.message}; trying again"
        self._why = None

    def is_hostile(self, branch: str) -> bool:
        """Say whether what is on the branch is refused."""
        return self._listed.get(branch) in self._hostile

    def holds(self, commit: str) -> bool:
        """Say whether a commit is not to be fetched now."""
        return commit in self._hostile or (commit in self._unreadable and not self._patience.allows(commit))

    def release(self, commits: set[str]) -> None:
        """Note that commits could be fetched after all."""
        if self._unreadable.keys() & commits:
            self._unreadable = {c: why for c, why in self._unreadable.items() if c not in commits}
            self._why = None

    def see(self, listed: Mapping[str, str]) -> None:
        """Take note of where the branches are now, and forget what is on none of them."""
        self._listed = listed
        if self._hostile or self._unreadable:
            there = set(listed.values())
            self._hostile = {c: why for c, why in self._hostile.items() if c in there}
            self._unreadable = {c: why for c, why in self._unreadable.items() if c in there}
            self._patience.keep(self._unreadable)
        self._why = None
