"""Remembers between commands since when this clone has seen a branch at one commit.

Both times are by this machine's clocks, so the clocks of two machines are never compared. The wall clock can be set,
and the monotonic clock restarts with each boot, so the smaller of the two differences counts. The result is only shown.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from bridge.common import strict_json
from bridge.errors import ManifestError
from bridge.system import local_files
from bridge.system.git import Git

_NAME = "kakeya-seen.json"
_MOST = 200
_MOST_BYTES = 128 * 1024


class Sightings:
    """The branches that a runner held when this clone last read them."""

    def __init__(self, git: Git) -> None:
        self._git = git
        # The last entry that this object read: a followed branch is read many times.
        self._last: tuple[str, str] | None = None

    def see(self, branch: str, tip: str) -> None:
        """Record that a branch is at a commit now."""
        if self._last != (branch, tip):
            self.unchanged_s(branch, tip)

    def unchanged_s(self, branch: str, tip: str) -> float:
        """Record that a branch is at a commit now, and return for how many seconds it has been seen there."""
        self._last = (branch, tip)
        known = _read(self.path)
        wall, running = time.time(), time.monotonic()
        before = known.pop(branch, None)
        if before and before[0] == tip and before[1] <= wall:
            since = wall - before[1]
            return min(since, running - before[2]) if before[2] <= running else since
        known[branch] = (tip, wall, running)
        _write(self.path, dict(list(known.items())[-_MOST:]))
        return 0.0

    @cached_property
    def path(self) -> Path:
        """The file."""
        return Path(self._git.text("rev-parse", "--absolute-git-dir")) / _NAME


def _read(path: Path) -> dict[str, tuple[str, float, float]]:
    try:
        record = strict_json.loads(local_files.read_regular(path, _MOST_BYTES) or b"", max_bytes=_MOST_BYTES)
        return {str(branch): (str(tip), float(at), float(up)) for branch, (tip, at, up) in record.items()}
    except (ManifestError, ValueError, TypeError, AttributeError):
        return {}


def _write(path: Path, known: dict[str, tuple[str, float, float]]) -> None:
    """Replace the file. Errors are ignored, so that a read-only repository can still show everything."""
    with suppress(OSError):
        local_files.replace(path, json.dumps(known))
