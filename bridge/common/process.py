"""The only access to other programs for shared code: short questions to the operating system and git."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping

# Signals by which the system, a user or a closed terminal asks a program to end.
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def answer(
    *argv: str, env: Mapping[str, str] | None = None, text: str = "", timeout: float = 5.0
) -> str | None:
    """Return the output of ``argv``, stripped; None if it is absent, fails, exceeds ``timeout`` s or prints nothing.

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
    """Return whether ``argv`` succeeded, and its output, or why it did not start or end within ``timeout`` s."""
    try:
        done = subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False
        )
    except OSError as error:
        return False, f"{argv[0]} cannot be started: {error.strerror}"
    except subprocess.TimeoutExpired:
        return False, f"{argv[0]} took longer than {timeout:.0f} s"
    return done.returncode == 0, done.stdout
