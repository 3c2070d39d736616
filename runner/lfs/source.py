"""Sources of Git LFS objects: the interface, and the source for a bus that is a local folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from runner.lfs.pointer import Pointer

CHUNK = 1 << 20


class Missing(Exception):  # noqa: N818 - one object, of which the others are independent
    """An object cannot be had from the bus. The message says why."""


class Source(Protocol):
    """A source of objects."""

    def announce(self, wanted: Sequence[Pointer]) -> None:
        """Announce which objects will be opened.

        Raises:
            Missing: none of them can be had.
        """

    def read(self, wanted: Pointer) -> Iterator[bytes]:
        """Yield an object's content in pieces of at most a megabyte.

        Raises:
            Missing: the object cannot be had.
        """


class FolderSource:
    """The source for a bus that is a folder: objects are below ``lfs/objects`` in the repository, as in git-lfs."""

    def __init__(self, url: str) -> None:
        path = Path(unquote(urlsplit(url).path) if url.startswith("file://") else url)
        folders = (path / ".git", path, path.with_name(f"{path.name}.git"))
        git_dir = next((folder for folder in folders if (folder / "HEAD").is_file()), path)
        self._objects = git_dir / "lfs" / "objects"

    def announce(self, wanted: Sequence[Pointer]) -> None:
        """Do nothing: a folder needs no announcement."""

    def read(self, wanted: Pointer) -> Iterator[bytes]:
        """Yield a regular file's content. Links are not followed."""
        file = self._objects / wanted.oid[:2] / wanted.oid[2:4] / wanted.oid
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise Missing(f"the bus does not have it ({error.strerror})") from error
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise Missing("on the bus, it is not a regular file")
            while chunk := opened.read(CHUNK):
                yield chunk
