"""Commits that this clone fetched once and found too large, or built on one, so that they are not fetched again.

Git reads a commit as a whole whenever it walks past it, in each later fetch too. So no reference is kept to a history
with a commit beyond the limit, and the id of its tip is noted in a file of the clone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from bridge.bus import lookup
from bridge.bus.ancestry import with_heavy_history
from bridge.common import limits
from bridge.errors import ProcessError
from bridge.system import local_files
from bridge.system.deadline import time_left
from bridge.system.git import Git

FILE_NAME = "kakeya-set-aside"
_MOST = 1_000
_ID = re.compile(r"[0-9a-f]{40,64}")
_LINE_BYTES = 65
# How long the histories of all branches of a list may take to read together, and of a part of them if that fails.
TOGETHER_S = 5.0
ALONE_S = 1.0
_PARTS = 8


class SetAside:
    """The commits that are not fetched again by one clone."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._weighed: set[str] = set()

    def without(self, listed: Mapping[str, str]) -> dict[str, str]:
        """Leave out of ``{branch: commit id}`` the commits that were found too large."""
        known = set(self._read())
        return {branch: oid for branch, oid in listed.items() if oid not in known}

    def put(self, fetched: Mapping[str, str], prefix: str, late: dict[str, str] | None = None) -> list[str]:
        """Drop references, ``prefix`` and the branch, to what is no commit or too large. Returns these branches.

        With ``late``, branches whose history takes long to read are dropped too, and put into it: a few megabytes may
        stand for a history that takes minutes.
        """
        new = {*fetched.values()} - self._weighed
        objects = lookup.locate(self._git, new)
        # What is no commit is nothing that we read, and may stand for anything.
        heavy = {oid for oid, it in objects.items() if it.kind != "commit" or it.size > limits.COMMIT_BYTES}
        slow: set[str] = set()
        if late is None:
            heavy |= with_heavy_history(self._git, new - heavy, but=f"{prefix}*")
        else:
            heavy |= self._weigh(sorted(new - heavy), f"{prefix}*", TOGETHER_S, slow)
            late |= {branch: oid for branch, oid in fetched.items() if oid in slow}
        self._weighed = new - heavy - slow | self._weighed.intersection(fetched.values())
        branches = [branch for branch, oid in fetched.items() if oid in heavy | slow]
        if heavy:
            self.note(heavy)
        if branches:
            drop = "".join(f"delete {prefix}{branch}\n" for branch in branches)
            self._git("update-ref", "--stdin", stdin=drop)
        return branches

    def _weigh(self, commits: list[str], but: str, time_s: float, slow: set[str]) -> set[str]:
        """Return the commits with a heavy history. Those that take too long alone, or get no time, are ``slow``."""
        if not commits:
            return set()
        try:
            return with_heavy_history(self._git, commits, but=but, timeout=min(time_s, max(0.0, time_left())))
        except ProcessError:
            if len(commits) == 1 or time_left() <= 0:
                slow |= set(commits)
                return set()
        parts = [commits[i::_PARTS] for i in range(min(_PARTS, len(commits)))]
        return set().union(*(self._weigh(part, but, ALONE_S, slow) for part in parts))

    @cached_property
    def _path(self) -> Path:
        return Path(self._git.text("rev-parse", "--absolute-git-dir")) / FILE_NAME

    def _read(self) -> list[str]:
        """Return the ids that are noted, oldest first."""
        data = local_files.read_regular(self._path, _MOST * _LINE_BYTES) or b""
        return _ID.findall(data.decode("ascii", "replace"))

    def note(self, commits: Collection[str]) -> None:
        """Add ids. In a repository that cannot be written to, they are fetched again."""
        noted = [oid for oid in self._read() if oid not in commits] + sorted(commits)
        with suppress(OSError):
            local_files.replace(self._path, "".join(f"{oid}\n" for oid in noted[-_MOST:]))
