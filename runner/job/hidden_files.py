"""What a job's processes hold that neither a folder nor their resident memory shows: deleted files and memory files.

Linux only; elsewhere nothing is found. A file that has no name any more lives as long as somebody has it open or
mapped; a memfd never had one. A segment of System V's shared memory belongs to no process at all and outlives the job,
so those that came with it are removed at its end. What is sent through a socket and held nowhere else is not seen.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import psutil

_LOOK_S = 0.01
_IPC_RMID = 0
_SEGMENTS = Path("/proc/sysvipc/shm")

# A file's device and inode.
Key = tuple[int, int]


@dataclass
class Found:
    """Sizes in bytes by file: in memory, and on disk."""

    memory: dict[Key, int] = field(default_factory=dict)
    disk: dict[Key, int] = field(default_factory=dict)

    def totals(self) -> tuple[int, int]:
        """Return how much there is in memory and on disk."""
        return sum(self.memory.values()), sum(self.disk.values())


class Held:
    """Follows what a job's processes hold, a few milliseconds at a look; where one look stops, the next goes on."""

    def __init__(self) -> None:
        self._before = set(_segments())
        self._found = self._next = Found()
        self._walk: Iterator[None] | None = None
        self._pids: set[int] = set()

    def look(self, pids: Sequence[int]) -> Found:
        """Look at the files of these processes and return what they hold, as far as it was seen."""
        if sys.platform != "linux":
            return self._found
        self._pids.update(pids)
        if self._walk is None:
            self._next = Found({(_memory_device(), id_): size for id_, size in self._segments().items()})
            self._walk = _look_through(list(pids), self._next)
        until = time.monotonic() + _LOOK_S
        for _ in self._walk:
            if time.monotonic() > until:
                return max(self._found, self._next, key=lambda found: sum(found.totals()))
        self._walk, self._found = None, self._next
        return self._found

    def release(self) -> None:
        """Remove the segments that the job left behind."""
        for segment in self._segments():
            ctypes.CDLL(None).shmctl(segment, _IPC_RMID, None)

    def _segments(self) -> dict[int, int]:
        """Return the new segments that one of the job's processes made, or one that is gone, with their sizes."""
        return {
            id_: size
            for id_, (size, maker) in _segments().items()
            if id_ not in self._before and (maker in self._pids or not psutil.pid_exists(maker))
        }


def _segments() -> dict[int, tuple[int, int]]:
    """Return this user's segments of System V's shared memory: how much each takes up, and who made it."""
    found = {}
    with suppress(OSError):
        for line in _SEGMENTS.read_text(encoding="ascii").splitlines()[1:]:
            words = [int(word) for word in line.split()]
            if words[9] == os.geteuid():
                found[words[1]] = (words[14] + words[15], words[4])
    return found


def _look_through(pids: Sequence[int], found: Found) -> Iterator[None]:
    """Add what these processes have open, or mapped, and what has no name. Yields after each file."""
    for pid in pids:
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                _add(entry.path, found)
                yield
        for place in _mapped(pid):
            _add(place, found)
            yield


def _mapped(pid: int) -> Iterator[str]:
    """Yield the mapped files without a name. Only root may look at them; the pages in use are counted anyway."""
    with suppress(OSError), Path(f"/proc/{pid}/maps").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.endswith("(deleted)\n"):
                yield f"/proc/{pid}/map_files/{line.split(' ', 1)[0]}"


def _add(place: str, found: Found) -> None:
    """Add an open file that has no name. Each is counted once, whoever has it open."""
    with suppress(OSError):
        about = os.stat(place)  # noqa: PTH116 - called many thousand times
        if stat.S_ISREG(about.st_mode) and about.st_nlink == 0:
            is_memory = about.st_dev in _memory_devices() or os.readlink(place).startswith("/memfd:")  # noqa: PTH115
            kind = found.memory if is_memory else found.disk
            kind[about.st_dev, about.st_ino] = about.st_blocks * 512


@cache
def _memory_device() -> int:
    """Return the device on which the kernel keeps what is shared in memory and has no name."""
    descriptor = os.memfd_create("probe")
    try:
        return os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)


@cache
def _memory_devices() -> frozenset[int]:
    with suppress(OSError):
        return frozenset((_memory_device(), os.stat("/dev/shm").st_dev))  # noqa: PTH116, S108
    return frozenset((_memory_device(),))
