"""For how long this clone has seen a branch at one commit, remembered from one command to the next.

Both ends of that time are this machine's own, so the clocks of two machines are never compared. Its wall clock may be
set, and the clock that only runs forward begins anew with each boot: the one that says less counts. The time is shown
to people and decides nothing.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from bridge.system.git import Git

_NAME = "kakeya-seen.json"
_MOST = 200


class Sightings:
    """The branches that a runner held when they were last looked at from here."""

    def __init__(self, git: Git) -> None:
        self._git = git
        # What was looked at last by this object: a branch that is followed is looked at many times.
        self._last: tuple[str, str] | None = None

    def see(self, branch: str, tip: str) -> None:
        """Note that a branch is at a commit now."""
        if self._last != (branch, tip):
            self.unchanged_s(branch, tip)

    def unchanged_s(self, branch: str, tip: str) -> float:
        """Note that a branch is at a commit now, and return for how many seconds it has been seen there."""
        self._last = (branch, tip)
        known = _read(self._path)
        wall, running = time.time(), time.monotonic()
        before = known.pop(branch, None)
        if before and before[0] == tip and before[1] <= wall:
            since = wall - before[1]
            return min(since, running - before[2]) if before[2] <= running else since
        known[branch] = (tip, wall, running)
        _write(self._path, dict(list(known.items())[-_MOST:]))
        return 0.0

    @cached_property
    def _path(self) -> Path:
        return Path(self._git.text("rev-parse", "--path-format=absolute", "--git-path", _NAME))


def _read(path: Path) -> dict[str, tuple[str, float, float]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {str(branch): (str(tip), float(at), float(up)) for branch, (tip, at, up) in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _write(path: Path, known: dict[str, tuple[str, float, float]]) -> None:
    """Replace the file. A repository that cannot be written to is no reason to show nothing."""
    with suppress(OSError):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{_NAME}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(known, file)
        Path(name).replace(path)
