"""A size-limited folder of immutable files that independent processes share without locks."""

import errno
import os
import secrets
import shlex
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from engine.errors import BadInput
from engine.serve.prefix_cache.block_file import RefusedError

STALE = 3600.0  # seconds after which a file that was never completed is removed
LOW = 7 / 8  # files are removed until this share of the budget is left


class Folder:
    """The files. One thread writes them, another one reads them; BadInput if another user may replace them.

    All files together have at most ``budget`` bytes. Several processes may exceed that by the bytes that they write
    between two scans of the folder.
    """

    def __init__(self, path: Path, budget: int) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner(path)
        self.path, self.budget = path, budget
        probe = self._temporary(path)
        probe.touch()
        probe.unlink()
        self.nbytes = 0  # the total size of the files, as far as this process knows
        self._written = 0  # bytes written since the last scan
        self._look()

    def read(self, name: str, most: int) -> bytes | None:
        """Return a file's bytes; None if there is none, RefusedError if it exceeds ``most`` or is no regular file."""
        try:
            fd = os.open(self.path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise RefusedError("damaged", "it is a symbolic link") from error
            raise
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)  # fdopen refuses a folder, and would leave it open
            raise RefusedError("damaged", "it is not a regular file")
        with os.fdopen(fd, "rb") as file:
            if status.st_size > most:
                message = f"it has {status.st_size} bytes, and such a block has at most {most}"
                raise RefusedError("layout", message)
            return file.read(most)

    def write(self, name: str, data: bytes) -> int:
        """Write a file atomically. Returns how many other files were removed for it."""
        gone = 0
        if self.nbytes + len(data) > self.budget or self._written > self.budget / 16:
            gone = self._look(len(data))
        path = self.path / name
        for folder in (self.path, path.parent):  # both may have been deleted
            folder.mkdir(mode=0o700, exist_ok=True)
        temporary, replaced = self._temporary(path.parent), 0
        with suppress(OSError):
            replaced = path.lstat().st_size
        try:
            with temporary.open("xb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(data)
            temporary.replace(path)
        finally:
            with suppress(OSError):
                temporary.unlink()
        self.nbytes += len(data) - replaced
        self._written += len(data)
        return gone

    def touch(self, names: Iterable[str]) -> None:
        """Mark files as recently used, in the given order."""
        for name in names:
            with suppress(OSError):
                os.utime(self.path / name)

    def _look(self, coming: int = 0) -> int:
        """Scan the folder, and remove the longest unused files if ``coming`` bytes do not fit. Returns how many."""
        files = sorted(self._files())
        self.nbytes, self._written = sum(size for _, size, _ in files), 0
        gone, most = 0, self.budget * LOW if self.nbytes + coming > self.budget else self.budget
        for _, size, path in files:
            if self.nbytes + coming <= most:
                break
            with suppress(OSError):
                path.unlink()
                gone += 1
            self.nbytes -= size
        return gone

    def _files(self) -> Iterable[tuple[int, int, Path]]:
        """Yield time of use, size and path of each file; another process may delete them meanwhile."""
        for path in self.path.glob("*/*"):
            try:
                about = path.lstat()
            except OSError:
                continue
            if path.suffix == ".kv":
                yield about.st_mtime_ns, about.st_size, path
            elif path.suffix == ".tmp" and time.time() - about.st_mtime > STALE:
                with suppress(OSError):
                    path.unlink()

    @staticmethod
    def _temporary(folder: Path) -> Path:
        return folder / f"{secrets.token_hex(8)}.tmp"


def _check_owner(path: Path) -> None:
    about = path.stat()
    if about.st_uid != os.geteuid():
        fix = "give --prefix-store a folder of your own"
        raise BadInput(f"the prefix store {path} belongs to another user", fix)
    if about.st_mode & 0o022:
        fix = f"run: chmod go-w {shlex.quote(str(path))}"
        raise BadInput(f"other users may write to the prefix store {path}", fix)
