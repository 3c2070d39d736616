"""Reads local files of any origin, if they are regular and not too large, and replaces our own files atomically."""

import os
import re
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from bridge.common import limits
from bridge.system.git import Git

# Opening a file must not wait for a pipe's writer or a device, nor make a terminal the controlling one.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NOTE_BYTES = 100 + limits.BRANCH_CHARS


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


def stamp(path: Path) -> tuple[int, ...] | None:
    """Return a key that changes with a file or a folder's list of files; None if the path does not exist.

    The key consists of device, inode, size in bytes, and change time in nanoseconds.
    """
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns


def replace(path: Path, text: str) -> None:
    """Replace a file of ASCII text atomically: readers get the old or the new text.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(text)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


class NoteFile:
    """A file of notes in a clone's ``.git`` folder, which commands read and write.

    It has at most ``most`` lines that match a pattern. It may be missing, or something else may be in its place.
    """

    def __init__(self, git: Git, name: str, line: re.Pattern[str], most: int) -> None:
        self._git = git
        self._name = name
        self._line = re.compile(rf"^{line.pattern}$", re.MULTILINE)
        self._most = most

    @cached_property
    def path(self) -> Path:
        """The file."""
        return Path(self._git.text("rev-parse", "--absolute-git-dir")) / self._name

    def read(self) -> list[tuple[str, ...]]:
        """Return each line's regex groups, oldest first; none if the file is too large or no regular file."""
        data = read_regular(self.path, self._most * _NOTE_BYTES) or b""
        return self._line.findall(data.decode("ascii", "replace"))

    def write(self, lines: Iterable[str]) -> None:
        """Replace the file's content by the last of these lines. If the repository is read-only, nothing changes."""
        with suppress(OSError):
            replace(self.path, "".join(f"{line}\n" for line in [*lines][-self._most :]))
