"""Lets signals end this process together with the programs that it runs, which nobody would end otherwise."""

from __future__ import annotations

import os
import signal
from types import FrameType

from bridge.common.process import ENDING_SIGNALS
from bridge.errors import ExitCode


def end_on_signals() -> None:
    """End on a signal as any program does, but end git first. Python handles ^C, and ignored signals stay so."""
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
    from bridge.system.process import end_children  # noqa: PLC0415 - slow to import, and seldom needed

    end_children()
    if signum == signal.SIGINT:
        os._exit(ExitCode.INTERRUPTED)
    os.kill(os.getpid(), signum)
