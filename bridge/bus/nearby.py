"""Notices pushes to a bus that is a folder on this machine by the times of its files, without asking git.

What it says is a hint: whoever waits looks at the bus now and then anyway. A bus may keep its references in other files
than these, or be no folder here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

# How often the files are looked at.
TICK_S = 0.02
_SCHEME = "file://"

_Stamp = tuple[int, int, int] | None


class Changes:
    """Whether some references of the repository at ``url`` may have changed since the last call of ``mark``.

    ``names`` are branches, or folders that hold branches.
    """

    def __init__(self, url: str, names: Iterable[str]) -> None:
        path = url.removeprefix(_SCHEME)
        top = Path(path) if path.startswith("/") and "\0" not in path else None
        heads = [git / "refs" / "heads" for git in (top, top / ".git")] if top else []
        self._paths = [folder / name for name in names for folder in heads if folder.is_dir()]
        self._seen: list[_Stamp] = []
        self._marked_at = time.monotonic()

    @property
    def are_seen(self) -> bool:
        """Return whether the bus is of the kind whose changes can be seen here."""
        return bool(self._paths)

    def mark(self) -> None:
        """Note how it is now. Call it before a look at the bus, so that what is pushed meanwhile is noticed."""
        self._seen = [_stamp(path) for path in self._paths]
        self._marked_at = time.monotonic()

    def wait(self, seconds: float, rest: Callable[[float], object], *, least: float) -> None:
        """Wait so long, or until something has changed, but until ``least`` seconds after the mark in any case.

        ``rest`` waits for a part of the time. If it returns true, the wait is over.
        """
        now = time.monotonic()
        until, soonest = now + seconds, self._marked_at + least
        while (remaining := until - time.monotonic()) > 0:
            if rest(min(remaining, TICK_S) if self._paths else remaining):
                return
            if time.monotonic() >= soonest and self._has_changed:
                return

    @property
    def _has_changed(self) -> bool:
        return self._seen != [_stamp(path) for path in self._paths]


def _stamp(path: Path) -> _Stamp:
    """Return what tells one version of a file from the next: git writes each as a new file."""
    try:
        about = os.stat(path)  # noqa: PTH116 - called often
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns, about.st_size
