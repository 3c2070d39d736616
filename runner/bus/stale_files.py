"""Removes what killed processes left behind: unfinished packs, locks, and git processes of a killed runner.

A stale lock file blocks every later change for ever, and git does not remove unfinished packs while its automatic
maintenance is off. Call these functions while the state folder is locked and no git process of this runner is active.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from bridge.bus import exact_refs
from runner.bus.store import scratch_folder

_UNFINISHED = (
    "objects/pack/tmp_*", "objects/pack/.tmp-*", "objects/[0-9a-f][0-9a-f]/tmp_obj_*", "objects/tmp_objdir-*/**/tmp_*",
)  # fmt: skip
_LOCKS = ("*.lock", "objects/info/*.lock", "refs/**/*.lock")
# Locks, marks of cut histories, and the references of pushes that were ended.
_STALE = (*_LOCKS, "shallow", f"{exact_refs.OUTGOING}**/*")
# No git process of a runner holds a lock for this long.
_HELD_S = 60.0
# Processes that adopt the children of dead processes.
_REAPERS = ("init", "systemd", "launchd")


def remove_stale_files(repository: Path) -> list[str]:
    """Remove leftovers, and return the names of the removed files, relative to the repository."""
    removed = []
    stale = [path for pattern in _STALE for path in repository.glob(pattern) if path.is_file()]
    for path in [*temporary_packs(repository), *stale]:
        with suppress(FileNotFoundError):
            path.unlink()
            removed.append(str(path.relative_to(repository)))
    return removed


def find_stale_lock(repository: Path) -> Path | None:
    """Return a lock that a killed git must have left, or None. Safe to call while other git processes are active."""
    for lock in (lock for pattern in _LOCKS for lock in repository.glob(pattern)):
        with suppress(FileNotFoundError):
            if abs(time.time() - lock.stat().st_mtime) > _HELD_S:
                return lock
    return None


def end_orphans(*repositories: Path) -> dict[Path, int]:
    """Kill git's process groups in these repositories whose parent is gone, and return their number by repository."""
    ended = Counter[Path]()
    owners = {str(at): each for each in repositories for at in (each, scratch_folder(each))}
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError, PermissionError):
            program, located, folder = [*process.cmdline()[:3], "", "", ""][:3]
            if (program, located) != ("git", "--git-dir") or folder not in owners:
                continue
            parent = process.parent()
            is_orphan = parent is None or parent.pid == 1 or parent.name() in _REAPERS
            if is_orphan and os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, signal.SIGKILL)
                ended[owners[folder]] += 1
    return ended


def temporary_packs(repository: Path) -> Iterator[Path]:
    """Yield the temporary files in which git collects objects."""
    for pattern in _UNFINISHED:
        yield from repository.glob(pattern)
