"""The only module that starts other programs: with argument lists, never a shell. It also limits and ends them."""

import os
import re
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.errors import ProcessError

if TYPE_CHECKING:
    import psutil

DEVNULL = subprocess.DEVNULL
PIPE = subprocess.PIPE
STDOUT = subprocess.STDOUT
Popen = subprocess.Popen
Expired = subprocess.TimeoutExpired

# How often a program's limits are checked.
TICK_S = 0.1
_POLITE_S = 2.0
# CPU time limit of a program with a memory limit, so that it ends even if this process is killed.
_CPU_S = 900
# Files that git writes while it receives a pack. Other git processes beside ours have files of their own.
_PACK = re.compile(r"/objects/pack/tmp_[a-z]+_\w+$")
# The running programs, and whether each leads a process group. They end with this process.
_CHILDREN: dict[subprocess.Popen[bytes], bool] = {}
_CLOSED = threading.Event()


@dataclass(frozen=True)
class ResourceLimits:
    """Limits of a program and its children; None is no limit.

    ``memory`` bounds the address space of each process in bytes, if the system can do that. It also bounds the
    processor time, so that a program ends even if this process is killed. ``own_memory`` bounds memory without mapped
    files, and no processor time, because programs that the user's git starts may stay. On the disk of the folder
    ``disk``, ``keep_free`` bytes stay free, or half of the free space if less than twice as much is free.
    """

    memory: int | None = None
    own_memory: int | None = None
    disk: Path | None = None
    keep_free: int = 0


NO_LIMITS = ResourceLimits()


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | str | None = None,
    stdin: int | None = DEVNULL,
    stdout: int | None = None,
    stderr: int | None = None,
    pass_fds: Sequence[int] = (),
    own_session: bool = True,
) -> Popen[bytes]:
    """Start a program and return at once.

    Raises:
        ProcessError: it cannot be started.
    """
    try:
        return subprocess.Popen(
            list(argv), env=dict(env), cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=tuple(pass_fds),
            start_new_session=own_session,
        )  # fmt: skip
    except OSError as error:
        message = f"cannot run {argv[0]}: {error.strerror or error}"
        # A folder to run it in may be missing too.
        is_missing = isinstance(error, FileNotFoundError) and error.filename == argv[0]
        fix = f"Install {argv[0]} and put it on the PATH." if is_missing and "/" not in argv[0] else None
        raise ProcessError(tuple(argv), None, message=message, fix=fix) from error


class LimitEnforcer:
    """Sets limits of a child and its children from outside: no Python code may run between fork and exec."""

    def __init__(self, child: Popen[bytes], resource_limits: ResourceLimits) -> None:
        self._pid = child.pid
        self._disk = resource_limits.disk
        self._limits: dict[int, int] = {}
        if hasattr(resource, "prlimit"):
            if resource_limits.memory is not None:
                self._limits = {resource.RLIMIT_AS: resource_limits.memory, resource.RLIMIT_CPU: _CPU_S}
            if resource_limits.own_memory is not None:
                self._limits[resource.RLIMIT_DATA] = resource_limits.own_memory
        free = free_bytes(self._disk)
        self._keep_free = 0 if free is None else min(resource_limits.keep_free, free // 2)
        self._next = 0.0
        self.passed()

    def passed(self) -> str | None:
        """Return why the child must be ended, or None. Limits are set again now and then.

        A process that the child was just starting when its limits were set has not inherited them.
        """
        if time.monotonic() < self._next:
            return None
        self._next = time.monotonic() + TICK_S
        if self._limits:
            self._set(self._pid)
        free = free_bytes(self._disk)
        if free is None or free >= self._keep_free:
            return None
        return f"leaves less than {self._keep_free >> 20} MiB of the disk free"

    def _set(self, pid: int) -> None:
        for which, most in self._limits.items():
            # The process may have ended, or may have a lower limit already.
            with suppress(OSError, ValueError):
                resource.prlimit(pid, which, (most, most))
        with suppress(OSError):
            for started in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
                self._set(int(started))


def free_bytes(folder: Path | None) -> int | None:
    """Return the free space on a folder's disk; None if it is not needed or not known."""
    try:
        return shutil.disk_usage(folder).free if folder else None
    except OSError:
        return None


def register(child: Popen[bytes], *, group: bool) -> None:
    """Let ``end_children`` end a program, with its group if it leads one, until ``unregister`` is called."""
    _CHILDREN[child] = group


def unregister(child: Popen[bytes]) -> None:
    """Record that a program has ended."""
    _CHILDREN.pop(child, None)


def end_children(after: float = 0.0) -> None:
    """End the programs of other threads, or of the code that a signal interrupted. Nothing is started after that.

    Threads that this process waits for at its end get ``after`` seconds to finish. A signal handler may call this, so
    it reaps no process: that takes a lock, which the interrupted code may hold.
    """
    until = time.monotonic() + after
    for thread in threading.enumerate() if after else ():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join(max(0.0, until - time.monotonic()))
    _CLOSED.set()
    running = {child.pid: group for child, group in list(_CHILDREN.items()) if child.returncode is None}
    if running:
        _remove(_end(running))


def check_open(argv: tuple[str, ...]) -> None:
    """Raise a ProcessError once ``end_children`` was called."""
    if _CLOSED.is_set():
        raise ProcessError(argv, None, message=f"{argv[0]} was not started, because this process is ending")


def end_family(child: Popen[bytes], *, group: bool) -> None:
    """End a program and its children.

    The program is reaped last: until then no other process can get its id, which is also the id of its group. An
    unfinished pack that git received is removed, because git itself keeps it for two weeks.
    """
    unfinished = _end({child.pid: group})
    child.wait()
    _remove(unfinished)


def _end(programs: Mapping[int, bool]) -> set[Path]:
    """End programs with their children, or the groups that they lead, and return the packs that they were writing.

    They are asked first, so that git can remove its locks, and then ended by force.
    """
    import psutil  # noqa: PLC0415 - slow to import, and seldom needed

    unfinished: set[Path] = set()
    family: list[psutil.Process] = []
    groups: list[int] = []
    for pid, group in programs.items():
        with suppress(psutil.Error):
            family.append(psutil.Process(pid))
            groups += [pid] if group else []
            family += [] if group else family[-1].children(recursive=True)
    for member in family:
        with suppress(psutil.Error, OSError):
            unfinished |= {Path(file.path) for file in member.open_files() if _PACK.search(file.path)}
    for signum in (signal.SIGTERM, signal.SIGKILL):
        for member in family:
            with suppress(psutil.Error):
                member.send_signal(signum)
        for pid in groups:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signum)
        until = time.monotonic() + _POLITE_S
        while signum == signal.SIGTERM and time.monotonic() < until and any(map(_lives, family)):
            time.sleep(0.02)
    return unfinished


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()


def _lives(process: "psutil.Process") -> bool:
    import psutil  # noqa: PLC0415

    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
