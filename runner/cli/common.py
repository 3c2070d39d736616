"""What the subcommands share: messages with a time, and an end that hands the job back."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress
from types import FrameType

from bridge.console import say
from runner.check.presets import refused_by
from runner.policy import Policy


def tell(message: str) -> None:
    """Print what happened as one line, with date and time. Nothing of it can steer a terminal or a CI system.

    A log file on a full disk loses lines, and stops no runner.
    """
    with suppress(OSError):
        say(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}")


def say_refused(policy: Policy) -> None:
    """Say which of the installed presets the policy refuses, and why."""
    lines = refused_by(policy)
    if lines:
        say("this policy refuses these presets, and runs the others:")
    for line in lines:
        say(f"  {line}")


def stop_on_signals(stop: threading.Event) -> None:
    """Let SIGTERM and ^C ask for an end; a second one does not wait for it."""

    def ask(signum: int, frame: FrameType | None) -> None:
        del frame
        if stop.is_set():
            raise KeyboardInterrupt
        tell(f"{signal.Signals(signum).name}: stopping")
        stop.set()

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)
