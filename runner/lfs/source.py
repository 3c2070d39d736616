"""Where objects of Git LFS come from: the interface, and a bus that is a folder on this machine."""

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
    """An object that the bus does not give, and why."""


class Source(Protocol):
    """Something that has objects."""

    def announce(self, wanted: Sequence[Pointer]) -> None:
        """Say which objects will be asked for. Raises Missing when the bus gives none of them."""

    def read(self, wanted: Pointer) -> Iterator[bytes]:
        """Yield an object's content, a megabyte at a time at most. Raises Missing."""


class FolderSource:
    """The bus is a folder: its objects lie below `lfs/objects` in the repository, where git-lfs puts them."""

    def __init__(self, url: str) -> None:
        path = Path(unquote(urlsplit(url).path) if url.startswith("file://") else url)
        places = (path / ".git", path, path.with_name(f"{path.name}.git"))
        git_dir = next((place for place in places if (place / "HEAD").is_file()), path)
        self._objects = git_dir / "lfs" / "objects"

    def announce(self, wanted: Sequence[Pointer]) -> None:
        """Nothing has to be asked for."""

    def read(self, wanted: Pointer) -> Iterator[bytes]:
        """Yield a regular file's content; never through a link in its place."""
        file = self._objects / wanted.oid[:2] / wanted.oid[2:4] / wanted.oid
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise Missing(f"the bus does not hold it ({error.strerror})") from error
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise Missing("the bus holds something that is no file in its place")
            while chunk := opened.read(CHUNK):
                yield chunk
