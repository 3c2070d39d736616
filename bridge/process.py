"""The one door to other programs: argv lists only, never a shell."""

from __future__ import annotations

import os
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import ProcessError

DEVNULL = subprocess.DEVNULL
PIPE = subprocess.PIPE
STDOUT = subprocess.STDOUT
Popen = subprocess.Popen
Expired = subprocess.TimeoutExpired


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


def run(
    *argv: str,
    env: Mapping[str, str],
    cwd: Path | str | None = None,
    stdin: bytes | None = None,
    timeout: float | None = None,
    check: bool = True,
    own_session: bool = False,
    most: int | None = None,
    memory: int | None = None,
) -> Completed:
    """Run a program to its end and return what it printed; past `most` bytes it is ended, and that is an error.

    `memory` bounds the address space of it and of each of its children, in bytes, where the system can do that.

    `own_session` keeps a terminal's ^C and prompts away from it, and lets a timeout end its children too.
    Raises ProcessError when it cannot be started, takes longer than `timeout` seconds, or (with `check`)
    ends with anything but 0.
    """
    try:
        child = subprocess.Popen(
            argv,
            cwd=cwd,
            env=dict(env),
            stdin=DEVNULL if stdin is None else PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=own_session,
        )
    except OSError as error:
        raise ProcessError(argv, None, message=f"cannot run {argv[0]}: {error.strerror or error}") from error
    with child:
        try:
            _limit(child, memory)
            head = _head(child, most)
            stdout, stderr = child.communicate(stdin, timeout)
            stdout = head + stdout
        except BaseException as error:
            _end(child, group=own_session)
            if isinstance(error, subprocess.TimeoutExpired):
                message = f"{' '.join(argv[:2])} took longer than {timeout:g} s"
                raise ProcessError(argv, None, message=message) from error
            raise
    done = Completed(argv, child.returncode, stdout, stderr)
    if check and done.returncode != 0:
        raise ProcessError(argv, done.returncode, stdout, stderr)
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
    """Start a program and return at once. Raises ProcessError when it cannot be started."""
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


def _head(child: Popen[bytes], most: int | None) -> bytes:
    """Return all that a program prints, but raise ProcessError past `most` bytes; nothing where there is no bound."""
    if most is None or child.stdout is None:
        return b""
    head = child.stdout.read(most + 1)
    if len(head) > most:
        argv = tuple(map(str, child.args)) if isinstance(child.args, tuple) else ()
        raise ProcessError(argv, None, message=f"it printed more than {most} bytes")
    return head


def _limit(child: Popen[bytes], memory: int | None) -> None:
    """Bound a child's address space. From outside, since nothing of ours may run between fork and exec."""
    if memory is not None and hasattr(resource, "prlimit"):
        with suppress(ProcessLookupError):
            resource.prlimit(child.pid, resource.RLIMIT_AS, (memory, memory))


class Child:
    """A program that is asked and answers through its pipes, or whose output is taken as it comes.

    Raises ProcessError where it cannot be started, ends in the middle of an answer, or takes longer than `timeout`
    seconds in all.
    """

    _CHUNK = 1 << 16
    _STDERR_BYTES = 1 << 16

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        own_session: bool = False,
        memory: int | None = None,
        timeout: float | None = None,
    ) -> None:
        self.argv = tuple(argv)
        self.stderr = b""
        self._group = own_session
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._child = start(argv, env=env, stdin=PIPE, stdout=PIPE, stderr=PIPE, own_session=own_session)
        _limit(self._child, memory)
        self._out = bytearray()
        self._selector = selectors.DefaultSelector()
        for pipe in (self._child.stdout, self._child.stderr):
            assert pipe is not None  # noqa: S101 - asked for above
            self._selector.register(pipe, selectors.EVENT_READ)

    def write(self, text: str) -> None:
        """Send it a text that fits into a pipe."""
        assert self._child.stdin is not None  # noqa: S101 - asked for above
        try:
            self._child.stdin.write(text.encode("utf-8", "surrogateescape"))
            self._child.stdin.flush()
        except BrokenPipeError as error:
            raise self._failed() from error

    def line(self) -> bytes:
        """Return its next line with the line's end."""
        searched = 0
        while (end := self._out.find(b"\n", searched)) < 0:
            searched = len(self._out)
            if not self._fill():
                raise self._failed()
        return self._take(end + 1)

    def lines(self, count: int) -> list[bytes]:
        """Return its next lines, so many, without their ends."""
        there, searched = 0, 0
        while (there := there + self._out.count(b"\n", searched)) < count:
            searched = len(self._out)
            if not self._fill():
                raise self._failed()
        *whole, rest = bytes(self._out).split(b"\n", count)
        self._out = bytearray(rest)
        return whole

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        while len(self._out) < size:
            if not self._fill():
                raise self._failed()
        return self._take(size)

    def chunks(self) -> Iterator[bytes]:
        """Yield what it prints until it ends; then it must have ended with 0."""
        assert self._child.stdin is not None  # noqa: S101 - asked for above
        self._child.stdin.close()
        while self._fill():
            yield self._take(len(self._out))
        if self._child.wait() != 0:
            raise self._failed()

    @property
    def is_running(self) -> bool:
        """Say whether it has not ended yet."""
        return self._child.poll() is None

    def ended(self, within: float) -> bool:
        """Wait so long for its end, and say whether it has ended. What it prints meanwhile is dropped.

        Raises ProcessError where it ended with anything but 0, or was given all the time that it may have.
        """
        assert self._child.stdin is not None  # noqa: S101 - asked for above
        self._child.stdin.close()
        until = time.monotonic() + within
        while self._selector.get_map():
            now = time.monotonic()
            if self._deadline is not None and now >= self._deadline:
                message = f"{' '.join(self.argv[:2])} took longer than {self._timeout:g} s"
                raise ProcessError(self.argv, None, message=message)
            if now >= until:
                return False
            self._receive(min(until, self._deadline or until) - now)
            self._out.clear()
        if self._child.wait() != 0:
            raise self._failed()
        return True

    def close(self) -> None:
        """End it, if it has not ended, and let go of its pipes."""
        self._selector.close()
        if self._child.poll() is None:
            _end(self._child, group=self._group)
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._child.wait()

    def _take(self, size: int) -> bytes:
        taken = bytes(self._out[:size])
        del self._out[:size]
        return taken

    def _fill(self) -> bool:
        """Wait for more output. Says whether there was any: if not, it has closed its pipes."""
        while self._selector.get_map():
            before = len(self._out)
            left = None if self._deadline is None else self._deadline - time.monotonic()
            if not self._receive(left if left is None else max(0.0, left)):
                message = f"{' '.join(self.argv[:2])} took longer than {self._timeout:g} s"
                raise ProcessError(self.argv, None, message=message)
            if len(self._out) > before:
                return True
        return False

    def _receive(self, within: float | None) -> bool:
        """Take what it has printed, as soon as there is something. Says whether there was, or a pipe was closed."""
        ready = self._selector.select(within)
        for key, _ in ready:
            data = os.read(key.fd, self._CHUNK)
            if not data:
                self._selector.unregister(key.fileobj)
            elif key.fileobj is self._child.stdout:
                self._out += data
            else:
                self.stderr = (self.stderr + data)[-self._STDERR_BYTES :]
        return bool(ready)

    def _failed(self) -> ProcessError:
        if self._child.poll() is None:
            _end(self._child, group=self._group)
        return ProcessError(self.argv, self._child.returncode, b"", self.stderr)


def _end(child: Popen[bytes], *, group: bool) -> None:
    with suppress(ProcessLookupError):
        if group:
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    child.wait()
