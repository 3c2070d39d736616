"""Checks that only this user and root can change or replace the files that decide what runs here.

A file is as safe as every folder and every link on the way to it: who may write to one of these can put another file
in its place.
"""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from bridge.errors import PolicyError

_MOST_LINKS = 40


def check_owned(path: Path, what: str) -> None:
    """Raise PolicyError where others may change what lies at `path`, or put something else there.

    The error names what they may write to and the command that mends it. A path that does not exist is checked as far
    as it goes.
    """
    for place in _way_to(path.absolute()):
        try:
            about = place.lstat()
        except FileNotFoundError:
            return
        except OSError as error:
            raise PolicyError(f"cannot look at {place}: {error.strerror}") from error
        quoted = shlex.quote(str(place))
        if about.st_uid not in (0, os.geteuid()):
            fix = f"Run: chown {_user()} {quoted}"
            raise PolicyError(f"{what} can be changed by others: {place} belongs to another user", fix=fix)
        if _others_may_write(about):
            message = f"others may write to {place}, which decides what {what} is"
            raise PolicyError(message, fix=f"Run: chmod go-w {quoted}")


def check_files_owned(folder: Path, pattern: str, what: str) -> None:
    """Raise PolicyError where others may change the folder or one of the files in it."""
    check_owned(folder, what)
    for file in sorted(folder.glob(pattern)):
        check_owned(file, what)


def _way_to(path: Path) -> Iterator[Path]:
    """Yield every folder and link through which a path leads, from the root on, and what lies at its end."""
    left, at, links = [*reversed(path.parts[1:])], Path(path.anchor), 0
    yield at
    while left:
        name = left.pop()
        if name == "..":
            at = at.parent
            continue
        at /= name
        yield at
        if at.is_symlink():
            links += 1
            if links > _MOST_LINKS:
                raise PolicyError(f"there are too many links on the way to {path}")
            target = at.readlink()
            left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            at = Path(target.anchor) if target.is_absolute() else at.parent


def _others_may_write(about: os.stat_result) -> bool:
    mode = about.st_mode
    if stat.S_ISLNK(mode):  # what a link leads to is decided by who may write to its folder
        return False
    if stat.S_ISDIR(mode) and mode & stat.S_ISVTX:  # nobody can replace there what is not theirs
        return False
    if mode & stat.S_IWOTH:
        return True
    return bool(mode & stat.S_IWGRP) and not (stat.S_ISDIR(mode) and _is_own_group(about.st_gid))


def _is_own_group(gid: int) -> bool:
    """Say whether a group is this user's alone, as many systems make one for each user."""
    try:
        me, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == me.pw_gid and group.gr_name == me.pw_name and set(group.gr_mem) <= {me.pw_name}


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
