"""The only access to other programs for shared code: short questions to the operating system and git."""

import signal
import subprocess
import time
from collections.abc import Mapping
from threading import Event, Timer

# Signals by which the system, a user or a closed terminal asks a program to end.
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


POLL_SECONDS = 0.05  # pause between checks whether a program is cancelled


def answer(
    *argv: str,
    env: Mapping[str, str] | None = None,
    text: str = "",
    timeout: float = 5.0,
    cancelled: Event | None = None,
) -> str | None:
    """Return the output of ``argv``, stripped; None if it is absent, fails, exceeds ``timeout`` s or prints nothing.

    ``env`` replaces the environment, and ``text`` is its standard input. Once ``cancelled`` is set, the program is
    killed, and the output is None.
    """
    pipe = subprocess.PIPE
    try:
        with subprocess.Popen(argv, text=True, env=env, stdin=pipe, stdout=pipe, stderr=pipe) as program:
            try:
                output = _communicate(program, text, time.monotonic() + timeout, cancelled)
            finally:
                program.kill()
    except (OSError, subprocess.SubprocessError):
        return None
    return output.strip() or None if output is not None and program.returncode == 0 else None


def _communicate(
    program: subprocess.Popen[str], text: str, deadline: float, cancelled: Event | None
) -> str | None:
    unsent: str | None = text
    while cancelled is None or not cancelled.is_set():
        remaining = deadline - time.monotonic()
        within = remaining if cancelled is None else min(remaining, POLL_SECONDS)
        try:
            return program.communicate(unsent, timeout=within)[0]
        except subprocess.TimeoutExpired:
            if time.monotonic() >= deadline:
                raise
        unsent = None  # it was handed over
    return None


def run(*argv: str, timeout: float, env: Mapping[str, str] | None = None) -> tuple[bool, str]:
    """Return whether ``argv`` succeeded; and its output, or why it did not start or not end within ``timeout`` s.

    ``env`` replaces the environment.
    """
    pipe = subprocess.PIPE
    try:
        done = subprocess.run(
            argv, stdout=pipe, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False, env=env
        )
    except OSError as error:
        return False, f"{argv[0]} cannot be started: {error.strerror}"
    except subprocess.TimeoutExpired:
        return False, f"{argv[0]} took longer than {timeout:.0f} s"
    return done.returncode == 0, done.stdout


class Companion:
    """A program that answers a line of text for each line that it is sent. Its standard error is this process's.

    Args:
        argv: the command.
        env: replaces the environment.
    """

    def __init__(self, *argv: str, env: Mapping[str, str] | None = None) -> None:
        pipe = subprocess.PIPE
        self._program = subprocess.Popen(argv, text=True, env=env, stdin=pipe, stdout=pipe)

    def ask(self, line: str, timeout: float) -> str | None:
        """Return the answer to a line; None if the program ended, or took longer than ``timeout`` s and was killed."""
        source, sink = self._program.stdin, self._program.stdout
        if source is None or sink is None:
            return None
        limit = Timer(timeout, self._program.kill)
        limit.start()
        try:
            source.write(f"{line}\n")
            source.flush()
            return sink.readline().strip() or None
        except (OSError, ValueError):  # it ended, or was closed
            return None
        finally:
            limit.cancel()

    def close(self) -> None:
        """End the program."""
        self._program.kill()
        try:
            self._program.communicate(timeout=5)
        except (OSError, ValueError, subprocess.SubprocessError):
            return
