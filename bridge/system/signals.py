"""Ends this process on a signal together with the programs that it runs, or asks it to stop."""

import os
import select
import signal
import weakref
from types import FrameType

from bridge.common.process import ENDING_SIGNALS
from bridge.errors import ExitCode


def end_on_signals() -> None:
    """End on a signal as any program does, but end git first. Python handles ^C, and ignored signals stay ignored."""
    for signum in ENDING_SIGNALS:
        if signal.getsignal(signum) is signal.SIG_DFL:
            signal.signal(signum, _end)


def end_on_interrupt() -> None:
    """Do the same on ^C, for a program whose threads cannot be interrupted."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def _end(signum: int, frame: FrameType | None) -> None:
    del frame
    # A second signal ends the process at once.
    signal.signal(signum, signal.SIG_DFL)
    from bridge.system.spawn import end_children  # noqa: PLC0415 - slow to import, and seldom needed

    end_children()
    if signum == signal.SIGINT:
        os._exit(ExitCode.INTERRUPTED)
    os.kill(os.getpid(), signum)


class StopRequest:
    """Whether this process was asked to stop, with the methods of a ``threading.Event``.

    An event uses a lock. A signal handler that sets the event runs in the main thread, and would wait forever if this
    thread holds the lock at that moment, at the beginning of a wait. Here, a byte in a pipe wakes waiting threads.
    """

    def __init__(self) -> None:
        self._asked = False
        self._reader, self._writer = os.pipe()
        weakref.finalize(self, _close, self._reader, self._writer)

    def is_set(self) -> bool:
        """Return whether the request was made."""
        return self._asked

    def set(self) -> None:
        """Make the request. Safe in a signal handler."""
        if not self._asked:
            self._asked = True
            os.write(self._writer, b"\0")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a request to stop, at most ``timeout`` seconds. Returns whether there was one."""
        if not self._asked:
            waiting = select.poll()
            waiting.register(self._reader, select.POLLIN)
            waiting.poll(None if timeout is None else max(0.0, 1000 * timeout))
        return self._asked


class Withdrawal(StopRequest):
    """Whether the requester of the one job that this process runs has withdrawn it, and why."""

    reason = "the program that carries it was told to stop"

    def withdraw(self, reason: str) -> None:
        """Withdraw the job for a reason, unless that was done before."""
        if not self.is_set():
            self.reason = reason
            self.set()


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
