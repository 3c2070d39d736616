"""Finds memory and disk that a job uses outside its folder and resident memory: deleted files and memory files.

Linux only; elsewhere it finds nothing. A deleted file exists as long as a process has it open or mapped; a memfd never
has a name. A segment of System V shared memory belongs to no process and outlives the job, so segments that appeared
during the job are removed at its end. A file descriptor that exists only inside a socket's queue is not found.
"""

import ctypes
import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

_LOOK_S = 0.01
_IPC_RMID = 0
_SEGMENTS = Path("/proc/sysvipc/shm")

# Device and inode of a file.
Key = tuple[int, int]


class OpenFiles:
    """Sizes in bytes by file: in memory, and on disk. No dataclass: the supervisor would take longer to start."""

    def __init__(self, memory: dict[Key, int] | None = None) -> None:
        self.memory = memory or {}
        self.disk: dict[Key, int] = {}

    def totals(self) -> tuple[int, int]:
        """Return the total sizes in memory and on disk, in bytes."""
        return sum(self.memory.values()), sum(self.disk.values())


class UnlinkedFileUsage:
    """Tracks the hidden files of a job's processes. Each call takes a few milliseconds and continues the search."""

    def __init__(self) -> None:
        self._before = set(_segments())
        self._found = self._next = OpenFiles()
        self._walk: Iterator[None] | None = None
        self._pids: set[int] = set()

    def measure(self, pids: Sequence[int]) -> OpenFiles:
        """Examine the files of these processes and return what was found so far."""
        if sys.platform != "linux":
            return self._found
        self._pids.update(pids)
        if self._walk is None:
            device = _memory_devices()[0]
            self._next = OpenFiles({(device, id_): size for id_, size in self._segments().items()})
            self._walk = _look_through(list(pids), self._next)
        until = time.monotonic() + _LOOK_S
        for _ in self._walk:
            if time.monotonic() > until:
                return max(self._found, self._next, key=lambda found: sum(found.totals()))
        self._walk, self._found = None, self._next
        return self._found

    def release(self) -> None:
        """Remove the shared memory segments that the job left behind."""
        for segment in self._segments():
            ctypes.CDLL(None).shmctl(segment, _IPC_RMID, None)

    def _segments(self) -> dict[int, int]:
        """Return the new segments, with sizes, whose creator is one of the job's processes or no longer exists."""
        return {
            id_: size
            for id_, (size, maker) in _segments().items()
            if id_ not in self._before and (maker in self._pids or not psutil.pid_exists(maker))
        }


def _segments() -> dict[int, tuple[int, int]]:
    """Return this user's System V shared memory segments: the size and the creator's process id of each."""
    segments = {}
    with suppress(OSError):
        for line in _SEGMENTS.read_text(encoding="ascii").splitlines()[1:]:
            words = [int(word) for word in line.split()]
            if words[9] == os.geteuid():
                segments[words[1]] = (words[14] + words[15], words[4])
    return segments


def _look_through(pids: Sequence[int], files: OpenFiles) -> Iterator[None]:
    """Add the nameless files that these processes have open or mapped. Yields after each file."""
    for pid in pids:
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                _add(entry.path, files)
                yield
        for path in _mapped(pid):
            _add(path, files)
            yield


def _mapped(pid: int) -> Iterator[str]:
    """Yield mapped files without a name. Only root may list them; their resident pages are counted in any case."""
    with suppress(OSError), Path(f"/proc/{pid}/maps").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.endswith("(deleted)\n"):
                yield f"/proc/{pid}/map_files/{line.split(' ', 1)[0]}"


def _add(path: str, files: OpenFiles) -> None:
    """Add an open file without a name. Each file counts once, however many processes have it open."""
    with suppress(OSError):
        about = os.stat(path)  # noqa: PTH116 - called many thousand times
        if stat.S_ISREG(about.st_mode) and about.st_nlink == 0:
            is_memory = about.st_dev in _memory_devices() or os.readlink(path).startswith("/memfd:")  # noqa: PTH115
            kind = files.memory if is_memory else files.disk
            kind[about.st_dev, about.st_ino] = about.st_blocks * 512


@cache
def _memory_devices() -> tuple[int, ...]:
    """Return the devices of files in memory. The kernel keeps anonymous shared memory on the first one."""
    descriptor = os.memfd_create("probe")
    devices = [os.fstat(descriptor).st_dev]
    os.close(descriptor)
    with suppress(OSError):
        devices.append(os.stat("/dev/shm").st_dev)  # noqa: PTH116, S108
    return tuple(devices)
