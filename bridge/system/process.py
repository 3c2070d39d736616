"""The only module that runs other programs: argument lists only, never a shell.

Every program that is run to its end has a limit on its output and, if the caller sets one, on its time.
"""

from __future__ import annotations

import os
import re
import resource
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from bridge.errors import ProcessError
from bridge.system import deadline

if TYPE_CHECKING:
    import psutil

DEVNULL = subprocess.DEVNULL
PIPE = subprocess.PIPE
STDOUT = subprocess.STDOUT
Popen = subprocess.Popen
Expired = subprocess.TimeoutExpired

# Default limits of standard output and standard error.
MOST_OUTPUT = 256 << 20
MOST_ERRORS = 64 << 20
# How much of the end of standard error is kept, because programs print last why they failed.
KEPT_ERRORS = 256 << 10

# How often a silent program is checked for its end and its deadline.
TICK_S = 0.1
_PIECE = 1 << 16
_POLITE_S = 2.0
# CPU time limit of a program with a memory limit, so that it ends even if this process is killed.
_CPU_S = 900
# How long an ended program's pipes are read if one of its children holds them open.
_LINGER_S = 2.0
# Files that git writes while it receives a pack. Other git processes beside ours have files of their own.
_PACK = re.compile(r"/objects/pack/tmp_[a-z]+_\w+$")
# The running programs, and whether each leads a process group. They end with this process.
_CHILDREN: dict[subprocess.Popen[bytes], bool] = {}
_CLOSED = threading.Event()


@dataclass(frozen=True)
class Completed:
    """What a finished program left behind."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Return standard output as text, without the final newline."""
        return self.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")


@dataclass(frozen=True)
class ResourceLimits:
    """What a program and its children may take. None: as much as they like.

    ``memory`` bounds the address space of each of them, in bytes, where the system can do that, and the processor time
    with it, which outlives this process. ``own_memory`` bounds memory that is no mapped file, and not the processor
    time: what the user's git starts may stay. ``disk`` names a folder on whose disk ``keep_free`` bytes stay free; of
    a disk that is fuller already, half of what is free stays so.
    """

    memory: int | None = None
    own_memory: int | None = None
    disk: Path | None = None
    keep_free: int = 0


NO_LIMITS = ResourceLimits()


def run(
    *argv: str,
    env: Mapping[str, str],
    cwd: Path | str | None = None,
    stdin: bytes | None = None,
    timeout: float | None = None,
    check: bool = True,
    own_session: bool = False,
    most: int | None = None,
    resource_limits: ResourceLimits = NO_LIMITS,
) -> Completed:
    """Run a program and return its output; beyond ``most`` bytes the program is ended with an error.

    Without ``most`` the bound is MOST_OUTPUT. Of standard error the last KEPT_ERRORS bytes are returned.
    ``own_session`` keeps a terminal's ^C and prompts away from it. A program that has to be ended takes its children
    along.

    Raises:
        ProcessError: it cannot be started, prints too much, fills the disk, takes longer than ``timeout`` seconds or
            than the block that it is called in may (see bridge.system.deadline), or (with ``check``) ends with anything
            but 0.
    """
    check_open(argv)
    source = DEVNULL if stdin is None else PIPE
    child = start(argv, env=env, cwd=cwd, stdin=source, stdout=PIPE, stderr=PIPE, own_session=own_session)
    register(child, group=own_session)
    with child:
        try:
            enforcer = LimitEnforcer(child, resource_limits)
            communication = _Communication(
                child, stdin or b"", MOST_OUTPUT if most is None else most, enforcer
            )
            communication.to_the_end(timeout)
        except BaseException as error:
            end_family(child, group=own_session)
            if isinstance(error, _OverrunError):
                raise ProcessError(argv, None, message=f"{argv[0]} {error}") from error
            raise
        finally:
            unregister(child)
        if communication.lingers and own_session:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
    done = Completed(
        argv, child.returncode, bytes(communication.output), bytes(communication.errors[-KEPT_ERRORS:])
    )
    if check and done.returncode != 0:
        raise ProcessError(argv, done.returncode, done.stdout, done.stderr)
    return done


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
            list(argv),
            env=dict(env),
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=tuple(pass_fds),
            start_new_session=own_session,
        )
    except OSError as error:
        message = f"cannot run {argv[0]}: {error.strerror or error}"
        raise ProcessError(tuple(argv), None, message=message) from error


class _OverrunError(Exception):
    """The program must be ended; the message says why."""


class _Communication:
    """The input and output of a running program, until it ends or must be ended."""

    def __init__(self, child: Popen[bytes], stdin: bytes, most: int, enforcer: LimitEnforcer) -> None:
        self._child = child
        self._enforcer = enforcer
        self._left = memoryview(stdin)
        self._most = most
        self._said = 0
        self.output = bytearray()
        self.errors = bytearray()
        # Something that the program started holds its pipes open, although it has ended.
        self.lingers = False

    def to_the_end(self, timeout: float | None) -> None:
        """Talk until the program has ended. Raises _OverrunError if it says too much or takes too long."""
        limit, heard_at = deadline.start(timeout), time.monotonic()
        with selectors.DefaultSelector() as selector:
            self._open(selector)
            while selector.get_map() or self._child.poll() is None:
                if reason := limit.passed():
                    raise _OverrunError(reason)
                if reason := self._enforcer.passed():
                    raise _OverrunError(reason)
                tick = min(TICK_S, limit.left())
                if not selector.get_map():
                    with suppress(Expired):
                        self._child.wait(tick)
                    continue
                ready = selector.select(tick)
                for key, _ in ready:
                    self._exchange(selector, key.fileobj)  # type: ignore[arg-type]
                if len(self.output) > self._most:
                    raise _OverrunError(f"printed more than {self._most} bytes")
                if self._said > MOST_ERRORS:
                    raise _OverrunError(f"printed more than {MOST_ERRORS} bytes of messages")
                if ready or self._child.poll() is None:
                    heard_at = time.monotonic()
                elif time.monotonic() - heard_at > _LINGER_S:
                    self.lingers = True
                    break
        limit.kept()

    def _open(self, selector: selectors.BaseSelector) -> None:
        for pipe in (self._child.stdout, self._child.stderr):
            assert pipe  # noqa: S101 - asked for above
            selector.register(pipe, selectors.EVENT_READ)
        pipe = self._child.stdin
        if pipe and self._left:
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_WRITE)
        elif pipe:
            pipe.close()

    def _exchange(self, selector: selectors.BaseSelector, pipe: IO[bytes]) -> None:
        """Write or read one piece, and close a pipe at its end."""
        if pipe is self._child.stdin:
            try:
                self._left = self._left[os.write(pipe.fileno(), self._left[:_PIECE]) :]
            except BlockingIOError:
                return
            except BrokenPipeError:
                self._left = self._left[:0]
            done = not self._left
        else:
            piece = os.read(pipe.fileno(), _PIECE)
            done = not piece
            if pipe is self._child.stdout:
                self.output += piece
            else:
                self._said += len(piece)
                self.errors += piece
                if len(self.errors) > 2 * KEPT_ERRORS:
                    del self.errors[:-KEPT_ERRORS]
        if done:
            selector.unregister(pipe)
            pipe.close()


class LimitEnforcer:
    """The limits of a child and its children, set from outside: no Python code may run between fork and exec."""

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

        What the child was just starting when it was bounded has not inherited them.
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
    """Take note that a program has ended."""
    _CHILDREN.pop(child, None)


def end_children(after: float = 0.0) -> None:
    """End the programs of other threads, or of the code that a signal interrupted. Nothing is started after that.

    Threads that this process waits for at its end get ``after`` seconds to finish. It may be called by a signal's
    handler, so it reaps nothing: that takes a lock, which may be held.
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

    The program is reaped last: until then no other process can get its id, which is also the id of its group. What git
    has received of a pack is removed, because git itself leaves it for two weeks.
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
        while signum == signal.SIGTERM and time.monotonic() < until and _lives(family):
            time.sleep(0.02)
    return unfinished


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()


def _lives(family: Sequence[psutil.Process]) -> bool:
    import psutil  # noqa: PLC0415

    for member in family:
        with suppress(psutil.Error):
            if member.is_running() and member.status() != psutil.STATUS_ZOMBIE:
                return True
    return False
