"""Measures a running job's memory, processes, disk space and files, and finds the exceeded limit.

The supervisor measures a few times a second, so a job can exceed a limit for a moment. Each measurement is cheap: the
job's folder is walked for a few milliseconds at a time, and the partial result already counts.
"""

import os
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from runner.job.hidden_files import Key, UnlinkedFileUsage

if TYPE_CHECKING:  # otherwise the supervisor would take longer to start
    from bridge import presets
    from runner import policy

# The limits, each with the message about a job that exceeds it.
BOUNDS = {
    "memory": "it exceeded its memory limit",
    "processes": "it exceeded its limit of processes",
    "disk": "its folder exceeded the disk limit",
    "files": "its folder exceeded the limit of files",
    "free": "the host's disk was nearly full",
    "available": "the host's memory was nearly used up",
}
_PAGE = os.sysconf("SC_PAGE_SIZE")
_WALK_S = 0.005
_REST_S = 5.0
_ELSEWHERE_S = 1.0  # pause between measurements if each has to list all processes of the machine


def job_limits(preset: "presets.Limits", host: "policy.Limits") -> dict[str, int]:
    """Return the limits of a job, in bytes or as counts: the smaller ones of its preset and this host's policy.

    ``free`` bytes must stay free on the disk, and ``available`` bytes of the host's memory.
    """
    memory = [megabytes for megabytes in (preset.memory_mb, host.memory_mb) if megabytes]
    return {
        "processes": min(preset.processes, host.processes),
        "disk": min(preset.disk_mb, host.disk_mb) << 20,
        "files": min(preset.files, host.files),
        "free": host.keep_free_mb << 20,
        "available": host.keep_memory_mb << 20,
        **({"memory": min(memory) << 20} if memory else {}),
    }


class Usage:
    """Measures a job's processes and its folder, against the limits of ``bounds``.

    ``available`` also ends jobs whose memory cannot be attributed to them.
    """

    def __init__(self, bounds: Mapping[str, int], folder: str) -> None:
        self._bounds = bounds
        self._folder = folder
        self._walk = _walk(folder)
        self._walk_at = 0.0
        self._look_at = 0.0
        self._held = UnlinkedFileUsage()
        self._disk = self._walked = self._held_disk = 0
        self.largest = 0
        # Of all ended processes.
        self.processor_s = 0.0
        self.peaks = dict.fromkeys(("memory", "processes", "disk", "files"), 0)

    def exceeded_limit(self) -> str | None:
        """Measure once, and return the name of an exceeded limit, or None."""
        self._look_at_processes()
        self._look_at_folder()
        if "free" in self._bounds and _free(self._folder) < self._bounds["free"]:
            return "free"
        if "available" in self._bounds and _available() < self._bounds["available"]:
            return "available"
        over = (name for name in self.peaks if self.peaks[name] > self._bounds.get(name, sys.maxsize))
        return next(over, None)

    def note(self, ended: resource.struct_rusage | None) -> None:
        """Record the peak memory and the processor time of an ended process and of the children that it waited for."""
        if ended:
            self.processor_s += ended.ru_utime + ended.ru_stime
            self.largest = max(self.largest, ended.ru_maxrss * (1 if sys.platform == "darwin" else 1024))

    def release(self) -> None:
        """Remove memory that a job can leave behind after all of its processes have ended."""
        self._held.release()

    def _look_at_processes(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        if Path(f"/proc/self/task/{os.getpid()}/children").exists():
            pids = list(_below(os.getpid()))
        else:
            pids = [process.pid for process in psutil.Process().children(recursive=True)]
            self._look_at = now + _ELSEWHERE_S
        unlinked = self._held.measure(pids)
        unnamed, self._held_disk = unlinked.totals()
        resident, shared = (sum(sizes) for sizes in zip((0, 0), *map(_resident, pids), strict=True))
        memory = resident + unnamed
        if memory > self._bounds.get("memory", sys.maxsize):
            # That sum counts shared pages once per process, and mapped pages of `unnamed` files twice: add up shares.
            memory = sum(_share(pid, unlinked.memory) for pid in pids) + unnamed
        else:
            memory = resident + max(0, unnamed - shared)
        self.peaks["processes"] = max(self.peaks["processes"], len(pids))
        self.peaks["memory"] = max(self.peaks["memory"], memory)

    def _look_at_folder(self) -> None:
        self.peaks["disk"] = max(self.peaks["disk"], self._disk + self._held_disk)
        now = time.monotonic()
        if now < self._walk_at:
            return
        until = now + _WALK_S
        for disk, files in self._walk:
            self._walked = disk
            self._disk = max(self._disk, disk)
            self.peaks["disk"] = max(self.peaks["disk"], disk + self._held_disk)
            self.peaks["files"] = max(self.peaks["files"], files)
            if time.monotonic() > until:
                return
        self._disk, self._walked = self._walked, 0
        self._walk = _walk(self._folder)
        self._walk_at = now + _REST_S


def _below(pid: int) -> Iterator[int]:
    """Yield every descendant. Orphans are below this process too: it is their reaper."""
    parents = [pid]
    while parents:
        # A process may end at any moment: before its threads are listed, or while they are.
        with suppress(OSError):
            for listed in Path(f"/proc/{parents.pop()}/task").glob("*/children"):
                with suppress(OSError):
                    for child in map(int, listed.read_text().split()):
                        yield child
                        parents.append(child)


def _resident(pid: int) -> tuple[int, int]:
    """Return the resident memory of a process, and how much of it may be shared, in bytes."""
    with suppress(OSError, psutil.Error, IndexError):
        if sys.platform == "linux":
            _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
            return int(resident) * _PAGE, int(shared) * _PAGE
        return int(psutil.Process(pid).memory_info().rss), 0
    return 0, 0


def _share(pid: int, but: Mapping[Key, int]) -> int:
    """Return a process's proportional share of memory, in bytes, without its mappings of these files."""
    total, counts = 0, True
    try:
        with Path(f"/proc/{pid}/smaps").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, _, rest = line.partition(" ")
                if not name.endswith(":"):
                    _, _, device, inode, *_ = rest.split(maxsplit=4)
                    major, _, minor = device.partition(":")
                    counts = (os.makedev(int(major, 16), int(minor, 16)), int(inode)) not in but
                elif name == "Pss:" and counts:
                    total += int(rest.split()[0]) * 1024
    except (OSError, ValueError):
        return _resident(pid)[0]
    return total


def _available() -> int:
    """Return the machine's available memory in bytes; elsewhere than on Linux there is no good estimate."""
    if sys.platform == "linux":
        with suppress(OSError, psutil.Error):
            return int(psutil.virtual_memory().available)
    return sys.maxsize


def _free(folder: str) -> int:
    with suppress(OSError):
        return int(psutil.disk_usage(folder).free)
    return sys.maxsize


def _walk(folder: str) -> Iterator[tuple[int, int]]:
    """Yield running totals: bytes on disk and number of entries. Links are not followed."""
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
