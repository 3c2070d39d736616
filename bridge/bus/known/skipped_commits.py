"""Commits that a clone does not fetch again: commits that are too large never, slow ones after a while.

Git reads a commit as a whole whenever it walks past it, in each later fetch too. So no reference is kept to a history
with a commit beyond the limit. A file of the clone holds the ids of the tips.
"""

import re
import time
from collections.abc import Collection, Mapping

from bridge.bus.objects import locate
from bridge.bus.oversized import oversized_tips
from bridge.common import limits
from bridge.errors import ProcessError
from bridge.system.deadline import time_left
from bridge.system.git import Git
from bridge.system.local_files import NoteFile

FILE_NAME = "kakeya-skipped"
MAX_ENTRIES = 2_000
# Each line holds an id and, if the commit may be fetched again, the time when it was skipped.
_LINE = re.compile(r"([0-9a-f]{40}) ([0-9]{1,12}|large)")
# A slow connection may be better after this time.
EXPIRY_S = 900.0
# Time limits for reading the histories of all branches of a list together and, if that fails, of a part of them.
TOGETHER_S = 5.0
ALONE_S = 1.0
_PARTS = 8


class SkippedCommits:
    """The commits that are skipped by one clone, and the branches that this process left out for being slow."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._file = NoteFile(git, FILE_NAME, _LINE, MAX_ENTRIES)
        self._checked: set[str] = set()
        self.slow_branches: set[str] = set()

    def without(self, listed: Mapping[str, str]) -> dict[str, str]:
        """Leave the skipped commits out of ``{branch: commit id}``."""
        skipped = self.read()
        self.slow_branches |= {name for name, oid in listed.items() if skipped.get(oid, "large") != "large"}
        return {branch: oid for branch, oid in listed.items() if oid not in skipped}

    def add_large(self, commits: Collection[str]) -> None:
        """Skip commits for good."""
        if commits:
            self._write({**self.read(), **dict.fromkeys(sorted(commits), "large")})

    def add_slow(self, listed: Mapping[str, str]) -> None:
        """Skip commits, given as ``{branch: commit id}``, for a while."""
        if listed:
            self.slow_branches |= listed.keys()
            self._write({**self.read(), **dict.fromkeys(listed.values(), str(int(time.time())))})

    def remove(self, commits: Collection[str]) -> None:
        """Let commits be fetched again."""
        skipped = self.read()
        if not skipped.keys().isdisjoint(commits):
            self._write({oid: at for oid, at in skipped.items() if oid not in commits})

    def read(self) -> dict[str, str]:
        """Return the current entry of each id, oldest first."""
        now = time.time()
        return {oid: at for oid, at in self._file.read() if at == "large" or 0 <= now - int(at) < EXPIRY_S}

    def _write(self, skipped: Mapping[str, str]) -> None:
        self._file.write(f"{oid} {at}" for oid, at in skipped.items())

    def drop_references(
        self, fetched: Mapping[str, str], prefix: str, late: dict[str, str] | None = None
    ) -> list[str]:
        """Delete references below ``prefix`` whose objects are too large or not commits. Returns their branches.

        With ``late``, branches whose history takes long to read are dropped too, and added to ``late``: a few megabytes
        may hold a history that takes minutes to read.
        """
        new = {*fetched.values()} - self._checked
        # An object that is not a commit may stand for anything, so it is not read.
        oversized = {
            oid
            for oid, entry in locate(self._git, new).items()
            if entry.kind != "commit" or entry.size > limits.COMMIT_BYTES
        }
        slow: set[str] = set()
        if late is None:
            oversized |= oversized_tips(self._git, new - oversized, but=f"{prefix}*")
        else:
            oversized |= self._check_histories(sorted(new - oversized), f"{prefix}*", TOGETHER_S, slow)
            late |= {branch: oid for branch, oid in fetched.items() if oid in slow}
        self._checked = new - oversized - slow | self._checked.intersection(fetched.values())
        self.add_large(oversized)
        branches = [branch for branch, oid in fetched.items() if oid in oversized | slow]
        self._git.delete_refs(f"{prefix}{branch}" for branch in branches)
        return branches

    def _check_histories(self, commits: list[str], but: str, time_s: float, slow: set[str]) -> set[str]:
        """Return the commits with an oversized history. Those that take too long, or get no time, are ``slow``."""
        if not commits:
            return set()
        try:
            timeout = min(time_s, max(0.0, time_left()))
            return oversized_tips(self._git, commits, but=but, timeout=timeout)
        except ProcessError:
            if len(commits) == 1 or time_left() <= 0:
                slow |= set(commits)
                return set()
        parts = [commits[i::_PARTS] for i in range(min(_PARTS, len(commits)))]
        return set().union(*(self._check_histories(part, but, ALONE_S, slow) for part in parts))
