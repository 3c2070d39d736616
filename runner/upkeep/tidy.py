"""Removes objects from the runner's store that are on no branch of the bus any more.

Anyone who can push can also overwrite and delete branches, again and again, and everything that was fetched stays in
the store until it is removed here. Requests wait meanwhile, so a store that has not grown is left alone.
"""

from __future__ import annotations

import shutil
import time

from bridge.common import limits
from bridge.system import git_output
from bridge.system.git import Git
from runner.state.ledger import Ledger
from runner.state.recover import release_settled

_EVERY_S = 3600.0
# If little of the disk is free, check this often. A fetch that leaves less than ``KEEP_FREE_BYTES`` fails.
_SCARCE_S = 300.0
_SCARCE_BYTES = 2 * limits.KEEP_FREE_BYTES
_SCARCE_GROWTH_KIB = 16 << 10
# By how much a store may grow: loose objects, packs, and KiB in all.
ROOM = {"count": 20_000, "packs": 200, "kib": 512 << 10}


class StoreTidier:
    """Tidies the store if it is more than twice as large as after the last tidying."""

    def __init__(self, git: Git, ledger: Ledger) -> None:
        self._git = git
        self._ledger = ledger
        self._after = dict.fromkeys(ROOM, 0)
        self._last: float | None = None

    def run_if_due(self) -> None:
        """Tidy the store if it has grown, or if the disk is almost full."""
        now = time.monotonic()
        is_scarce = shutil.disk_usage(self._git.directory).free < _SCARCE_BYTES
        if self._last is not None and now - self._last < (_SCARCE_S if is_scarce else _EVERY_S):
            return
        self._last = now
        size = self._measure()
        has_grown = any(size[name] > 2 * self._after[name] + room for name, room in ROOM.items())
        if has_grown or (is_scarce and size["kib"] > self._after["kib"] + _SCARCE_GROWTH_KIB):
            tidy(self._git, self._ledger)
            self._after = self._measure()

    def _measure(self) -> dict[str, int]:
        counts = git_output.counts(self._git("count-objects", "-v").stdout)
        return {**counts, "kib": counts["size"] + counts["size-pack"]}


def tidy(git: Git, ledger: Ledger) -> None:
    """Remove unreachable objects from the store. Unpushed answers have references of their own, and stay."""
    release_settled(ledger, git)
    # Do not use `git gc`: it would write each unreachable object to a file, to keep it for a while.
    git("repack", "-a", "-d", "--quiet")
    git("pack-refs", "--all", "--prune")
    git("prune", "--expire=1.hour.ago")
