"""The one door to other programs: argv lists only, never a shell."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import ProcessError

DEVNULL = subprocess.DEVNULL
PIPE = subprocess.PIPE
STDOUT = subprocess.STDOUT
Popen = subprocess.Popen
Expired = subprocess.TimeoutExpired


@dataclass(frozen=True)
class Completed:
    """What a finished program left behind."""

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
    stdin: bytes | None = None,
    timeout: float | None = None,
    check: bool = True,
    own_session: bool = False,
    most: int | None = None,
) -> Completed:
    """Run a program to its end and return what it printed; past `most` bytes it is ended, and that is an error.

    `own_session` keeps a terminal's ^C and prompts away from it, and lets a timeout end its children too.
    Raises ProcessError when it cannot be started, takes longer than `timeout` seconds, or (with `check`)
    ends with anything but 0.
    """
    try:
        child = subprocess.Popen(
            argv,
            cwd=cwd,
            env=dict(env),
            stdin=DEVNULL if stdin is None else PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=own_session,
        )
    except OSError as error:
        raise ProcessError(argv, None, message=f"cannot run {argv[0]}: {error.strerror or error}") from error
    with child:
        try:
            head = _head(child, most)
            stdout, stderr = child.communicate(stdin, timeout)
            stdout = head + stdout
        except BaseException as error:
            _end(child, group=own_session)
            if isinstance(error, subprocess.TimeoutExpired):
                message = f"{' '.join(argv[:2])} took longer than {timeout:g} s"
                raise ProcessError(argv, None, message=message) from error
            raise
    done = Completed(argv, child.returncode, stdout, stderr)
    if check and done.returncode != 0:
        raise ProcessError(argv, done.returncode, stdout, stderr)
    return done


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | str | None = None,
    stdin: int | None = DEVNULL,
    stdout: int | None = None,
    stderr: int | None = None,
    pass_fds: Sequence[int] = (),
    own_session: bool = True,
) -> Popen[bytes]:
    """Start a program and return at once. Raises ProcessError when it cannot be started."""
    try:
        return subprocess.Popen(
            list(argv),
            env=dict(env),
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=tuple(pass_fds),
            start_new_session=own_session,
        )
    except OSError as error:
        message = f"cannot run {argv[0]}: {error.strerror or error}"
        raise ProcessError(tuple(argv), None, message=message) from error


def _head(child: Popen[bytes], most: int | None) -> bytes:
    """Return all that a program prints, but raise ProcessError past `most` bytes; nothing where there is no bound."""
    if most is None or child.stdout is None:
        return b""
    head = child.stdout.read(most + 1)
    if len(head) > most:
        argv = tuple(map(str, child.args)) if isinstance(child.args, tuple) else ()
        raise ProcessError(argv, None, message=f"it printed more than {most} bytes")
    return head


def _end(child: Popen[bytes], *, group: bool) -> None:
    with suppress(ProcessLookupError):
        if group:
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    child.wait()
