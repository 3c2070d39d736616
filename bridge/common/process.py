"""The door to other programs for what all programs share: short questions to the operating system and git."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping

# Signals by which the system, a user or a closed terminal asks a program to end.
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def answer(
    *argv: str, env: Mapping[str, str] | None = None, text: str = "", timeout: float = 5.0
) -> str | None:
    """Return what ``argv`` prints, stripped; None if it is absent, fails, exceeds ``timeout`` s or prints nothing.

    ``env`` replaces the environment, and ``text`` is its standard input.
    """
    try:
        done = subprocess.run(
            argv, input=text, capture_output=True, text=True, env=env, timeout=timeout, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def run(*argv: str, timeout: float) -> tuple[bool, str]:
    """Return whether ``argv`` succeeded, and what it printed, or why it could not start or end within ``timeout`` s."""
    try:
        done = subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False
        )
    except OSError as error:
        return False, f"{argv[0]} cannot be started: {error.strerror}"
    except subprocess.TimeoutExpired:
        return False, f"{argv[0]} took longer than {timeout:.0f} s"
    return done.returncode == 0, done.stdout
