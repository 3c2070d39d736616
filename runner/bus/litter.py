"""What killed processes left: git's unfinished packs and locks, and git processes of a runner that was killed itself.

A lock that nobody holds stops every later change for good, and unfinished packs are never removed by git itself while
its automatic maintenance is off. Called while the state folder is locked, when no git of this runner's is at work.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

# What inherits the children of a process that has died.
_REAPERS = ("init", "systemd", "launchd")


def remove_litter(repository: Path) -> list[str]:
    """Remove it, and return the names of what was removed, from the repository's folder on."""
    removed = []
    for path in [*unfinished(repository), *_locks(repository)]:
        with suppress(FileNotFoundError):
            path.unlink()
            removed.append(str(path.relative_to(repository)))
    return removed


def end_orphans(repository: Path) -> int:
    """Kill git processes that work in the repository for nobody, and return how many: a server can keep them for ever.

    Git is started in a group of its own, so its helpers end with it.
    """
    ended = 0
    for process in psutil.process_iter(["cmdline"]):
        argv = process.info["cmdline"] or []
        if argv[:3] != ["git", "--git-dir", str(repository)]:
            continue
        with suppress(psutil.Error, ProcessLookupError, PermissionError):
            parent = process.parent()
            is_orphan = parent is None or parent.pid == 1 or parent.name() in _REAPERS
            if is_orphan and os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, signal.SIGKILL)
                ended += 1
    return ended


def unfinished(repository: Path) -> Iterator[Path]:
    """Yield the files in which git gathers objects, before they have their names."""
    objects = repository / "objects"
    yield from objects.glob("pack/tmp_*")
    yield from objects.glob("pack/.tmp-*")
    yield from objects.glob("[0-9a-f][0-9a-f]/tmp_obj_*")
    yield from objects.glob("tmp_objdir-*/**/tmp_*")


def _locks(repository: Path) -> Iterator[Path]:
    yield from repository.glob("*.lock")
    yield from (repository / "objects" / "info").glob("*.lock")
    yield from (path for path in (repository / "refs").rglob("*.lock") if path.is_file())
