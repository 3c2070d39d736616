"""Removes a job's folder: any depth, any number of entries, any permissions, with little memory."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(root: Path) -> None:
    """Remove a folder with its content. What cannot be removed stays until the next removal of leftovers.

    Nested folders are moved up to the top, one level at a time, so that neither paths nor the stack grow with the
    depth. Links are removed and not followed.
    """
    with suppress(OSError):
        root.chmod(0o700)
        top = os.open(root, _FOLDER)
        try:
            while _empty(top, top):
                pass
        finally:
            os.close(top)
        root.rmdir()


def _empty(folder: int, top: int) -> bool:
    """Remove a folder's files, and move its folders up to ``top``. Returns whether anything was removed or moved."""
    went = False
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if not stat.S_ISDIR(os.lstat(entry.name, dir_fd=folder).st_mode):
                    os.unlink(entry.name, dir_fd=folder)
                elif folder != top:
                    _move_up(entry.name, folder, top)
                else:
                    _take_down(entry.name, top)
                went = True
    return went


def _move_up(name: str, folder: int, top: int) -> None:
    os.chmod(name, 0o700, dir_fd=folder)  # moving a folder needs write permission on it
    os.rename(name, f"left-{secrets.token_hex(8)}", src_dir_fd=folder, dst_dir_fd=top)


def _take_down(name: str, top: int) -> None:
    os.chmod(name, 0o700, dir_fd=top)
    folder = os.open(name, _FOLDER, dir_fd=top)
    try:
        while _empty(folder, top):
            pass
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)
