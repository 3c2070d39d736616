"""Local files: reads those that anybody may have written, regular ones up to a limit, and replaces our own whole."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

# Neither a pipe without a writer nor a device is waited for, and no terminal becomes ours.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_regular(path: Path, most: int) -> bytes | None:
    """Return a file's content; None if it cannot be read, is not a regular file, or is larger than ``most`` bytes."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        descriptor = os.open(path, _READ)
    except (OSError, ValueError):
        return None
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > most:
            return None
        try:
            content = file.read(most + 1)
        except OSError:
            return None
    return content if len(content) <= most else None


def replace(path: Path, text: str) -> None:
    """Write a file of ASCII text whole: whoever reads it meanwhile gets the old or the new one.

    Raises:
        OSError: its folder cannot be written to.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(text)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink()
        raise
