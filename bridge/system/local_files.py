"""Reads local files that anybody may have written: only regular files, and never more than a limit."""

from __future__ import annotations

import os
import stat
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
