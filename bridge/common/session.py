"""Runs one program in a session of its own, and ends it together with all processes of its group."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

_PIECE = 1 << 16
# How long the end of a killed group may take.
_END_S = 1.0


class Session:
    """A program whose output is read while it runs.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str]) -> None:
        pipe = subprocess.PIPE
        self._program = subprocess.Popen(
            list(argv), env=dict(env), stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
        assert self._program.stdin and self._program.stdout and self._program.stderr  # noqa: S101, PT018
        self._stdin = self._program.stdin.fileno()
        self._unsent = b""
        os.set_blocking(self._stdin, False)
        self._open = {self._program.stdout.fileno(): 0, self._program.stderr.fileno(): 1}
        self._selector = selectors.DefaultSelector()
        for pipe in self._open:
            self._selector.register(pipe, selectors.EVENT_READ)

    @property
    def returncode(self) -> int | None:
        """The exit code; None while the program runs."""
        return self._program.poll()

    def write(self, data: bytes) -> None:
        """Send data to the program; the part that does not fit into the pipe is sent by ``read``."""
        self._unsent += data
        try:
            self._unsent = self._unsent[os.write(self._stdin, self._unsent) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._unsent = b""

    def read(self, within: float) -> tuple[bytes, bytes]:
        """Wait at most ``within`` seconds for output, and return what came on standard output and standard error."""
        if self._unsent:
            self.write(b"")
        pieces = [b"", b""]
        if not self._open:
            with suppress(subprocess.TimeoutExpired):
                self._program.wait(within)
        for key, _ in self._selector.select(within) if self._open else ():
            piece = os.read(key.fd, _PIECE)
            pieces[self._open[key.fd]] += piece
            if not piece:
                self._selector.unregister(key.fd)
                del self._open[key.fd]
        return pieces[0], pieces[1]

    def end(self) -> None:
        """End the program and all processes of its group at once, even stopped ones."""
        # The program is reaped afterwards: until then, no other group can have its number.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._program.pid, signal.SIGKILL)
        self._program.wait()
        self._wait_for_group()
        self._selector.close()
        for pipe in (self._program.stdin, self._program.stdout, self._program.stderr):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def _wait_for_group(self) -> None:
        until = time.monotonic() + _END_S
        with suppress(ProcessLookupError, PermissionError):
            while time.monotonic() < until:
                os.killpg(self._program.pid, 0)
                time.sleep(0.01)
