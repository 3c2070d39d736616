"""Ends the chat on SIGTERM at any time, and restores the terminal."""

import os
import signal
import sys
import termios
import threading

import click

from bridge.common.cli.output import is_read_by_people
from engine.cli.chat.screen import RESET


def give_back_on_sigterm() -> None:
    """On SIGTERM, restore the terminal's mode and end the process at once. Call it before other threads start.

    A thread waits for the signal, because Python's handlers do not run while the main thread waits in ``readline``.
    """
    mode = termios.tcgetattr(sys.stdin)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def wait() -> None:
        signal.pthread_sigmask(
            signal.SIG_BLOCK, {signal.SIGTTOU}
        )  # a background process may set the mode then
        signal.sigwait({signal.SIGTERM})
        try:
            termios.tcsetattr(sys.stdin, termios.TCSANOW, mode)
            if is_read_by_people():
                click.echo(RESET)
        finally:
            os._exit(128 + signal.SIGTERM)

    threading.Thread(target=wait, name="sigterm", daemon=True).start()
