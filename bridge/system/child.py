"""A child process that is used through its pipes: it answers questions, or its output is read as a stream."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from bridge.errors import ProcessError
from bridge.system import deadline
from bridge.system.process import (
    MOST_ERRORS,
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

# How long a program that waits for questions may take to end once its input is closed.
_MOMENT_S = 0.5


class Child:
    """A program that answers questions through its pipes, or whose output is read as it comes.

    Raises:
        ProcessError: it cannot be started, ends in the middle of an answer, or takes longer than ``timeout`` seconds in
            all.
    """

    _CHUNK = 1 << 16
    _STDERR_BYTES = 1 << 16

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        own_session: bool = False,
        resource_limits: ResourceLimits = NO_LIMITS,
        timeout: float | None = None,
        error: Callable[..., ProcessError] = ProcessError,
    ) -> None:
        self._error = error
        self.argv = tuple(argv)
        self.stderr = b""
        self._said = 0
        self._group = own_session
        self._limit = deadline.start(timeout)
        check_open(self.argv)
        self._child = start(argv, env=env, stdin=PIPE, stdout=PIPE, stderr=PIPE, own_session=own_session)
        self.pid = self._child.pid
        register(self._child, group=own_session)
        self._enforcer = LimitEnforcer(self._child, resource_limits)
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
        """Return the next ``count`` lines, without their ends."""
        there, searched = 0, 0
        while (there := there + self._out.count(b"\n", searched)) < count:
            searched = len(self._out)
            if not self._fill():
                raise self._failed()
        *whole, rest = bytes(self._out).split(b"\n", count)
        self._out = bytearray(rest)
        return whole

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        while len(self._out) < size:
            if not self._fill():
                raise self._failed()
        return self._take(size)

    def chunks(self) -> Iterator[bytes]:
        """Yield the output until the program ends; it must end with 0."""
        assert self._child.stdin is not None  # noqa: S101 - asked for above
        self._child.stdin.close()
        while self._fill():
            yield self._take(len(self._out))
        if self._child.wait() != 0:
            raise self._failed()

    @property
    def is_running(self) -> bool:
        """Return whether it has not ended yet."""
        return self._child.poll() is None

    def ended(self, within: float) -> bool:
        """Wait for the program's end, and return whether it has ended. Output meanwhile is dropped.

        Raises:
            ProcessError: it ended with anything but 0, or was given all the time that it may have.
        """
        assert self._child.stdin is not None  # noqa: S101 - asked for above
        self._child.stdin.close()
        until = time.monotonic() + within
        while self._selector.get_map():
            self._check_time()
            remaining = max(0.0, until - time.monotonic())
            self._receive(min(remaining, TICK_S))
            self._out.clear()
            # The program's end shows only in its pipes, so they are read even if no time is left.
            if not remaining and self._selector.get_map():
                return False
        if self._child.wait() != 0:
            raise self._failed()
        return True

    def renew(self) -> None:
        """Put it under the deadline of the block that asks it from now on."""
        self._limit = deadline.start(None)

    def close(self) -> None:
        """End it, if it has not ended, and let go of its pipes. What waits for questions ends by itself."""
        assert self._child.stdin is not None  # noqa: S101 - asked for above
        if not self._child.stdin.closed:
            with suppress(BrokenPipeError):
                self._child.stdin.close()
            self._end_by_itself()
        self._selector.close()
        if self._child.poll() is None:
            end_family(self._child, group=self._group)
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._child.wait()
        unregister(self._child)

    def _end_by_itself(self) -> None:
        """Give the program a moment to end, now that nothing more is asked. An unfinished answer is dropped."""
        until = time.monotonic() + _MOMENT_S
        while self._selector.get_map() and (remaining := until - time.monotonic()) > 0:
            for key, _ in self._selector.select(remaining):
                if os.read(key.fd, self._CHUNK):
                    return
                self._selector.unregister(key.fileobj)
        if not self._selector.get_map():
            with suppress(Expired):
                self._child.wait(_MOMENT_S)

    def _take(self, size: int) -> bytes:
        data = bytes(self._out[:size])
        del self._out[:size]
        return data

    def _fill(self) -> bool:
        """Wait for more output. Returns whether there was any: if not, it has closed its pipes."""
        while self._selector.get_map():
            self._check_time()
            before = len(self._out)
            self._receive(TICK_S)
            if len(self._out) > before:
                return True
        return False

    def _check_time(self) -> None:
        if reason := self._limit.passed():
            raise self._error(self.argv, None, message=f"{' '.join(self.argv[:2])} {reason}")

    def _receive(self, within: float) -> None:
        """Read the output as soon as there is some."""
        if reason := self._enforcer.passed():
            # The program must not go on, whatever the caller does with the error.
            end_family(self._child, group=self._group)
            raise self._error(self.argv, None, message=f"{self.argv[0]} {reason}")
        for key, _ in self._selector.select(within):
            data = os.read(key.fd, self._CHUNK)
            if not data:
                self._selector.unregister(key.fileobj)
            elif key.fileobj is self._child.stdout:
                self._out += data
            else:
                self._said += len(data)
                self.stderr = (self.stderr + data)[-self._STDERR_BYTES :]
        if self._said > MOST_ERRORS:
            message = f"{self.argv[0]} printed more than {MOST_ERRORS} bytes of messages"
            raise self._error(self.argv, None, message=message)

    def _failed(self) -> ProcessError:
        if self._child.poll() is None:
            end_family(self._child, group=self._group)
        return self._error(self.argv, self._child.returncode, b"", self.stderr)
