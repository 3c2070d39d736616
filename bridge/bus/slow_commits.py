"""Commits that took this clone too long to fetch with others. Lists leave them out for a while, and say so.

They are noted by id in a file of the clone, each with the time: a slow connection may be better later.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from bridge.system import local_files
from bridge.system.git import Git

FILE_NAME = "kakeya-slow"
MAX_ENTRIES = 1_000
_LINE = re.compile(r"([0-9a-f]{40,64}) ([0-9]{1,12})")
_LINE_BYTES = 80
# After this time they are asked for again.
EXPIRY_S = 900.0


class SlowCommits:
    """The commits that are left out by one clone, and the branches that this process left out for them."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self.left_out: set[str] = set()

    def without(self, listed: Mapping[str, str]) -> dict[str, str]:
        """Leave out of ``{branch: commit id}`` the commits that came too slowly a while ago."""
        known = self.read()
        others = {branch: oid for branch, oid in listed.items() if oid not in known}
        self.left_out |= listed.keys() - others.keys()
        return others

    def put(self, late: Mapping[str, str]) -> None:
        """Note commits that came too slowly, given as ``{branch: commit id}``."""
        if late:
            self.left_out |= late.keys()
            self._write({**self.read(), **dict.fromkeys(late.values(), time.time())})

    def forget(self, commits: Collection[str]) -> None:
        """Take note that commits are here now."""
        known = self.read()
        if not known.keys().isdisjoint(commits):
            self._write({oid: at for oid, at in known.items() if oid not in commits})

    @cached_property
    def path(self) -> Path:
        """The file."""
        return Path(self._git.text("rev-parse", "--absolute-git-dir")) / FILE_NAME

    def read(self) -> dict[str, float]:
        """Return the ids that count now and when they were noted, oldest first."""
        data = local_files.read_regular(self.path, MAX_ENTRIES * _LINE_BYTES) or b""
        noted = {oid: float(at) for oid, at in _LINE.findall(data.decode("ascii", "replace"))}
        now = time.time()
        return {oid: at for oid, at in noted.items() if 0 <= now - at < EXPIRY_S}

    def _write(self, noted: Mapping[str, float]) -> None:
        """Replace the file. In a repository that cannot be written to, they are asked for again."""
        lines = [f"{oid} {int(at)}\n" for oid, at in noted.items()]
        with suppress(OSError):
            local_files.replace(self.path, "".join(lines[-MAX_ENTRIES:]))
