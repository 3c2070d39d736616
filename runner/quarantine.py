"""Branches that are left out of a fetch, so that one that cannot be had does not keep the others from being seen.

Git fetches all that it is asked for, or nothing. Two kinds stand in the way: objects that git's checks refuse, which
no retry changes, and objects that the bus cannot send whole, because its disk or the way to it damages them.
"""

from __future__ import annotations

from collections.abc import Collection

from bridge.errors import InfrastructureError
from runner.patience import Patience

HOSTILE = "hostile_objects"


class Quarantine:
    """Which branches are left out, and why."""

    def __init__(self) -> None:
        # Why each is left out, in words for the operator.
        self.why: dict[str, str] = {}
        self._hostile: set[str] = set()
        # When to ask again for those that the bus could not send.
        self._patience = Patience()

    def put(self, branch: str, error: InfrastructureError) -> None:
        """Leave a branch out from now on: for good where its objects are refused, else for a while."""
        if error.code == HOSTILE:
            self._hostile.add(branch)
            self.why[branch] = error.message
        else:
            self._patience.failed(branch)
            self.why[branch] = f"{error.message}; trying again"

    def is_hostile(self, branch: str) -> bool:
        """Say whether git refuses what is on the branch."""
        return branch in self._hostile

    def left_out(self) -> list[str]:
        """Return the branches that are not to be fetched now."""
        return [b for b in self.why if self.is_hostile(b) or not self._patience.allows(b)]

    def release(self, branches: Collection[str]) -> None:
        """Forget branches that were fetched, or that are gone."""
        self.why = {branch: why for branch, why in self.why.items() if branch not in branches}
        self._hostile &= self.why.keys()
        self._patience.keep(self.why)
