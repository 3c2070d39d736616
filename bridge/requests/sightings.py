"""Remembers between commands since when this clone has seen a branch at one commit.

Both times are by this machine's clocks, so the clocks of two machines are never compared. The wall clock can be set,
and the monotonic clock restarts with each boot, so the smaller of the two differences counts. The result is only shown.
"""

from __future__ import annotations

import re
import time

from bridge.system.git import Git
from bridge.system.local_files import NoteFile

_NAME = "kakeya-seen"
_MOST = 200
# The commit, the two times, and the branch.
_LINE = re.compile(r"([0-9a-f]{40}) ([0-9]{1,12}\.[0-9]{6}) ([0-9]{1,12}\.[0-9]{6}) (\S+)")


class Sightings:
    """The branches that a runner held when this clone last read them."""

    def __init__(self, git: Git) -> None:
        self._file = NoteFile(git, _NAME, _LINE, _MOST)
        # The last entry that this object read, cached because a followed branch is read many times.
        self._last: tuple[str, str] | None = None

    def see(self, branch: str, tip: str) -> None:
        """Record that a branch is at a commit now."""
        if self._last != (branch, tip):
            self.unchanged_s(branch, tip)

    def unchanged_s(self, branch: str, tip: str) -> float:
        """Record that a branch is at a commit now, and return for how many seconds it has been seen there."""
        self._last = (branch, tip)
        known = {name: (oid, float(at), float(up)) for oid, at, up, name in self._file.read()}
        wall, running = time.time(), time.monotonic()
        before = known.pop(branch, None)
        if before and before[0] == tip and before[1] <= wall:
            since = wall - before[1]
            return min(since, running - before[2]) if before[2] <= running else since
        known[branch] = (tip, wall, running)
        self._file.write(f"{oid} {at:.6f} {up:.6f} {name}" for name, (oid, at, up) in known.items())
        return 0.0
