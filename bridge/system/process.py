"""Runs other programs: to their end, or as children that answer queries through their pipes.

Every program has limits on its output and, if the caller sets one, on its time.
"""

import math
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bridge.errors import ProcessError
from bridge.system import deadline
from bridge.system.spawn import (
    NO_LIMITS,
    PIPE,
    TICK_S,
    Expired,
    LimitEnforcer,
    ResourceLimits,
    check_open,
    end_family,
    register,
    start,
    unregister,
)

# Default limits of standard output and standard error.
MOST_OUTPUT = 256 << 20
MOST_ERRORS = 64 << 20
# How much of the end of standard error is kept, because programs print last why they failed.
KEPT_ERRORS = 256 << 10

_PIECE = 1 << 16
# How long an ended program's pipes are read if one of its children holds them open.
_LINGER_S = 2.0
# How long a program that waits for queries may take to end once its input is closed.
_MOMENT_S = 0.5


@dataclass(frozen=True)
class Completed:
    """The exit code and output of a finished program."""

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
    stdin: bytes | str = b"",
    timeout: float | None = None,
    check: bool = True,
    own_session: bool = False,
    most: int = MOST_OUTPUT,
    resource_limits: ResourceLimits = NO_LIMITS,
) -> Completed:
    """Run a program and return its output; beyond ``most`` bytes the program is ended with an error.

    The last KEPT_ERRORS bytes of standard error are returned. ``own_session`` keeps a terminal's ^C and prompts away
    from the program. If the program has to be ended, its children are ended too.

    Raises:
        ProcessError: it cannot be started, prints too much, fills the disk, takes longer than ``timeout`` seconds or
            than the block that it is called in may (see bridge.system.deadline), or (with ``check``) ends with anything
            but 0.
    """
    child = Child(
        argv, env=env, cwd=cwd, own_session=own_session, resource_limits=resource_limits, timeout=timeout
    )
    done = child.run(stdin, most)
    if check and done.returncode != 0:
        raise ProcessError(argv, done.returncode, done.stdout, done.stderr)
    return done


class Child:
    """A program that answers queries through its pipes, or whose output is read while it runs.

    Raises:
        ProcessError: it cannot be started, ends in the middle of an answer, or takes longer than ``timeout`` seconds in
            all. If ``error`` is given, the exception that it returns is raised instead.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | str | None = None,
        own_session: bool = False,
        resource_limits: ResourceLimits = NO_LIMITS,
        timeout: float | None = None,
        error: Callable[..., ProcessError] = ProcessError,
    ) -> None:
        self._error = error
        self.argv = tuple(argv)
        self._group = own_session
        self._limit, self._heard_at = deadline.Limit(timeout), time.monotonic()
        self._input, self._input_ends = memoryview(b""), False
        self._output, self._errors, self._error_bytes = bytearray(), bytearray(), 0
        self._most = math.inf
        check_open(self.argv)
        self._child = start(
            argv, env=env, cwd=cwd, stdin=PIPE, stdout=PIPE, stderr=PIPE, own_session=own_session
        )
        self.pid = self._child.pid
        register(self._child, group=own_session)
        self._enforcer = LimitEnforcer(self._child, resource_limits)
        self._selector = selectors.DefaultSelector()
        pipes = self._child.stdin, self._child.stdout, self._child.stderr
        self._stdin, *self._outputs = filter(None, pipes)
        os.set_blocking(self._stdin.fileno(), False)
        for pipe in self._outputs:
            self._selector.register(pipe, selectors.EVENT_READ)

    def write(self, data: str | bytes) -> None:
        """Send data to the program. Data that does not fit into the pipe is sent while its output is read."""
        data = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        self._input = memoryview(bytes(self._input) + data if self._input else data)
        self._send()

    def line(self) -> bytes:
        """Return the program's next line of output, with its line end."""
        while (end := self._output.find(b"\n") + 1) == 0:
            self._fill()
        return self._take(end)

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        while len(self._output) < size:
            self._fill()
        return self._take(size)

    def chunks(self) -> Iterator[bytes]:
        """Yield the output until the program ends; it must end with 0."""
        self._end_input()
        while self._exchange(TICK_S):
            if self._output:
                yield self._take(len(self._output))
        self._check_end()

    def run(self, stdin: str | bytes, most: int) -> Completed:
        """Run the program to its end and return the result, with at most ``most`` bytes of output."""
        self._most = most
        try:
            self.write(stdin)
            self._end_input()
            while self._exchange(TICK_S):
                pass
            if self._selector.get_map() and self._group:
                # Something that the program started holds its pipes open, although it has ended.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
            self._limit.ended()
        except BaseException:
            self.end()
            raise
        finally:
            self.close()
        errors = bytes(self._errors[-KEPT_ERRORS:])
        return Completed(self.argv, self._child.returncode, bytes(self._output), errors)

    @property
    def is_running(self) -> bool:
        """Return whether the program has not ended yet."""
        return self._child.poll() is None

    def ended(self, within: float) -> bool:
        """Wait for the program's end, and return whether it has ended. Output meanwhile is dropped.

        Raises:
            ProcessError: the program failed, or its time is over.
        """
        self._end_input()
        until = time.monotonic() + within
        while self._exchange(min(TICK_S, max(0.0, until - time.monotonic()))):
            self._output.clear()
            # The program's end shows in its pipes, so they are read even if no time is left.
            if time.monotonic() >= until and (self._selector.get_map() or self.is_running):
                return False
        self._check_end()
        return True

    def renew(self) -> None:
        """From now on, apply the deadline of the calling block."""
        self._limit = deadline.Limit()

    def end(self) -> None:
        """End the program and its children, unless it has ended."""
        if self.is_running:
            end_family(self._child, group=self._group)

    def close(self) -> None:
        """Close the pipes and end the program. One that waits for queries ends by itself once its input is closed."""
        waits = not self._stdin.closed
        self._selector.close()
        for pipe in (self._stdin, *self._outputs):
            pipe.close()
        if waits:
            with suppress(Expired):
                self._child.wait(_MOMENT_S)
        self.end()
        self._child.wait()
        unregister(self._child)

    def _take(self, size: int) -> bytes:
        with memoryview(self._output) as output:
            data = bytes(output[:size])  # a slice of the array itself would copy once more
        del self._output[:size]
        return data

    def _fill(self) -> None:
        """Wait for more output; it is an error if the program has ended without any."""
        before = len(self._output)
        while self._exchange(TICK_S):
            if len(self._output) > before:
                return
        raise self._failed()

    def _exchange(self, within: float) -> bool:
        """Send and receive for some time. Returns False once the program has ended and all its output was read."""
        if reason := self._limit.passed() or self._enforcer.passed():
            raise self._overrun(reason)
        within = min(within, self._limit.remaining())
        if not self._selector.get_map():
            with suppress(Expired):
                self._child.wait(within)
            return self.is_running
        ready = self._selector.select(within)
        for key, _ in ready:
            if key.fileobj is self._stdin:
                self._send()
            else:
                self._receive(key.fileobj)  # type: ignore[arg-type]
        if ready or self.is_running:
            self._heard_at = time.monotonic()
        return time.monotonic() - self._heard_at <= _LINGER_S

    def _receive(self, pipe: IO[bytes]) -> None:
        piece = os.read(pipe.fileno(), _PIECE)
        if not piece:
            self._selector.unregister(pipe)
        elif pipe is self._child.stdout:
            self._output += piece
            if len(self._output) > self._most:
                raise self._overrun(f"printed more than {self._most} bytes")
        else:
            self._error_bytes += len(piece)
            self._errors += piece
            if len(self._errors) > 2 * KEPT_ERRORS:
                del self._errors[:-KEPT_ERRORS]
            if self._error_bytes > MOST_ERRORS:
                raise self._overrun(f"printed more than {MOST_ERRORS} bytes of messages")

    def _end_input(self) -> None:
        self._input_ends = True
        self._send()

    def _send(self) -> None:
        if self._stdin.closed:
            return
        waits = self._stdin in self._selector.get_map()
        try:
            while self._input:
                self._input = self._input[os.write(self._stdin.fileno(), self._input[:_PIECE]) :]
        except BlockingIOError:
            if not waits:
                self._selector.register(self._stdin, selectors.EVENT_WRITE)
            return
        except BrokenPipeError:
            self._input = memoryview(b"")
        if waits:
            self._selector.unregister(self._stdin)
        if self._input_ends:
            self._stdin.close()

    def _check_end(self) -> None:
        if self._child.returncode != 0:
            raise self._failed()

    def _overrun(self, reason: str) -> ProcessError:
        """End the program, whatever the caller does with the error."""
        self.end()
        return self._error(self.argv, None, message=f"{self.argv[0]} {reason}")

    def _failed(self) -> ProcessError:
        self.end()
        return self._error(self.argv, self._child.returncode, b"", bytes(self._errors[-KEPT_ERRORS:]))
