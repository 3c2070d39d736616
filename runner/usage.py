"""What a job takes up while it runs, and which bound it passed: memory, processes, disk, files.

Looked at by the supervisor a few times a second, so a bound can be overrun for a moment. Each look takes little: the
job's folder is walked a few milliseconds at a time, and what the walk has found so far already counts.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

BOUNDS = ("memory", "processes", "disk", "files", "free")

_PAGE = os.sysconf("SC_PAGE_SIZE")
_WALK_S = 0.005
_REST_S = 5.0
_ELSEWHERE_S = 1.0  # between looks at processes where each look has to go through all of the machine's


class Usage:
    """Follows a job's processes and its folder.

    `bounds` holds the most that is allowed, in bytes or as a count; `free` is what must stay free on the disk.
    """

    def __init__(self, bounds: Mapping[str, int], folder: str) -> None:
        self._bounds = bounds
        self._folder = folder
        self._walk = _walk(folder)
        self._walk_at = 0.0
        self._look_at = 0.0
        self.largest = 0
        self.peaks = dict.fromkeys(("memory", "processes", "disk", "files"), 0)

    def exceeded(self) -> str | None:
        """Look, and return the name of a bound that is passed."""
        self._look_at_processes()
        self._look_at_folder()
        if "free" in self._bounds and _free(self._folder) < self._bounds["free"]:
            return "free"
        over = (name for name in self.peaks if self.peaks[name] > self._bounds.get(name, sys.maxsize))
        return next(over, None)

    def note(self, ended: resource.struct_rusage | None) -> None:
        """Take note of how large a process that has ended was, or one that it waited for."""
        if ended:
            self.largest = max(self.largest, ended.ru_maxrss * (1 if sys.platform == "darwin" else 1024))

    def _look_at_processes(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        listed = Path(f"/proc/self/task/{os.getpid()}/children").exists()
        self._look_at = 0.0 if listed else now + _ELSEWHERE_S
        pids = (
            list(_below(os.getpid()))
            if listed
            else [p.pid for p in psutil.Process().children(recursive=True)]
        )
        memory = sum(map(_resident, pids))
        if memory > self._bounds.get("memory", sys.maxsize):
            # Pages that several processes share were counted once for each.
            memory = sum(map(_share, pids))
        self.peaks["processes"] = max(self.peaks["processes"], len(pids))
        self.peaks["memory"] = max(self.peaks["memory"], memory)

    def _look_at_folder(self) -> None:
        now = time.monotonic()
        if now < self._walk_at:
            return
        until = now + _WALK_S
        for disk, files in self._walk:
            self.peaks["disk"] = max(self.peaks["disk"], disk)
            self.peaks["files"] = max(self.peaks["files"], files)
            if time.monotonic() > until:
                return
        self._walk = _walk(self._folder)
        self._walk_at = now + _REST_S


def _below(pid: int) -> Iterator[int]:
    """Yield every descendant. Orphans are below this process too: it is their reaper."""
    parents = [pid]
    while parents:
        for listed in Path(f"/proc/{parents.pop()}/task").glob("*/children"):
            with suppress(OSError):
                for child in map(int, listed.read_text().split()):
                    yield child
                    parents.append(child)


def _resident(pid: int) -> int:
    with suppress(OSError, psutil.Error, IndexError):
        if sys.platform == "linux":
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
        return int(psutil.Process(pid).memory_info().rss)
    return 0


def _share(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return _resident(pid)


def _free(folder: str) -> int:
    with suppress(OSError):
        about = os.statvfs(folder)
        return about.f_bavail * about.f_frsize
    return sys.maxsize


def _walk(folder: str) -> Iterator[tuple[int, int]]:
    """Yield the bytes on disk and the number of entries found so far. Links are not followed."""
    disk = files = 0
    folders = [folder]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                files += 1
                with suppress(OSError):
                    disk += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                yield disk, files
