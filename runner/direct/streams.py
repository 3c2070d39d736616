"""The manifest that comes in, bounded in bytes and time, and the log that goes out while the job runs."""

import os
import select
import sys
import time
from contextlib import suppress
from pathlib import Path

from bridge.common.cli.output import put_block, say
from bridge.common.strict_json import MAX_BYTES
from bridge.errors import UsageError, one_line
from bridge.verify.export import Fetched
from runner.job.observer import Observer

# How long a manifest may take to arrive.
ARRIVES_S = 60.0
_STDIN = Path("-")
_HOW = "Write it with `kakeya manifest PRESET`."


def read_manifest(path: Path, seconds: float = ARRIVES_S) -> bytes:
    """Return a manifest from a file, a pipe or standard input (``-``); of one that is too large, a part that is too.

    Raises:
        UsageError: there is none, or it does not arrive in time.
    """
    if path == _STDIN:
        if sys.stdin is None:
            raise UsageError("standard input is closed, so no manifest can come", fix=_HOW)
        return _read(sys.stdin.fileno(), "standard input", seconds)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            return _read(descriptor, str(path), seconds)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UsageError(f"cannot read the manifest {path}: {error.strerror}", fix=_HOW) from error


def _read(descriptor: int, name: str, seconds: float) -> bytes:
    content, until = bytearray(), time.monotonic() + seconds
    while len(content) <= MAX_BYTES:
        remaining_s = until - time.monotonic()
        if remaining_s <= 0 or not select.select([descriptor], [], [], remaining_s)[0]:
            raise UsageError(f"no whole manifest came from {name} within {seconds:g} s", fix=_HOW)
        try:
            piece = os.read(descriptor, MAX_BYTES + 1 - len(content))
        except BlockingIOError:
            continue
        if not piece:
            break
        content += piece
    if not content:
        raise UsageError(f"no manifest came from {name}", fix=_HOW)
    return bytes(content)


class LogShown(Observer):
    """Prints the job's log on standard error."""

    def prints(self, data: bytes) -> None:
        """Print a part of it. Without a reader, the job goes on."""
        with suppress(OSError):
            put_block(data.decode("utf-8", "replace"), err=True)


def say_answer(answer: Fetched) -> None:
    """Print how a request ended."""
    with suppress(OSError):
        say(f"{answer.report.conclusion.state}: {one_line(answer.result.reason.message)}")
