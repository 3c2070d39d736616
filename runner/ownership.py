"""Checks that only this user and root can change or replace the files that decide what runs here.

A file is only as safe as every folder and symbolic link on the path to it: whoever may write to one of these can put
another file in its place.
"""

import grp
import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bridge.errors import PolicyError
from bridge.presets.schema_files import named_schemas

_MOST_LINKS = 40


def check_owned(path: Path, noun: str) -> None:
    """Raise PolicyError if others may change or replace the file or folder at ``path``.

    The error names what they may write to, and the command that fixes it. If the path does not exist, its existing
    parents are checked.
    """
    for path_part in _way_to(path.absolute()):
        try:
            about = path_part.lstat()
        except FileNotFoundError:
            return
        except OSError as error:
            raise PolicyError(f"cannot look at {path_part}: {error.strerror}") from error
        quoted = shlex.quote(str(path_part))
        if about.st_uid not in (0, os.geteuid()):
            message = f"{noun} can be changed by others: {path_part} belongs to another user"
            raise PolicyError(message, fix=f"Run: chown {user_name()} {quoted}")
        if _others_may_write(about):
            message = f"others may write to {path_part}, which decides what {noun} is"
            raise PolicyError(message, fix=f"Run: chmod go-w {quoted}")


@contextmanager
def own_files() -> Iterator[None]:
    """Create files in this block that others may not change and this user may, whatever umask was inherited."""
    inherited = os.umask(0o022)
    os.umask((inherited | 0o022) & 0o077)
    try:
        yield
    finally:
        os.umask(inherited)


def check_presets_owned(folder: Path) -> None:
    """Raise PolicyError if others may change the folder, a preset in it, or a schema that one of them names."""
    for path in (folder, *sorted(folder.glob("*.yaml")), *named_schemas(folder)):
        check_owned(path, "the presets")


def _way_to(path: Path) -> Iterator[Path]:
    """Yield every folder and link on a path, from the root on, and then the file or folder at its end."""
    pending, at, links = [*reversed(path.parts[1:])], Path(path.anchor), 0
    yield at
    while pending:
        name = pending.pop()
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
            pending += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            at = Path(target.anchor) if target.is_absolute() else at.parent


def _others_may_write(about: os.stat_result) -> bool:
    mode = about.st_mode
    if stat.S_ISLNK(mode):  # whoever may write to a link's folder decides where the link leads
        return False
    if stat.S_ISDIR(mode) and mode & stat.S_ISVTX:  # in a sticky folder, nobody can replace files of others
        return False
    if mode & stat.S_IWOTH:
        return True
    return bool(mode & stat.S_IWGRP) and not (stat.S_ISDIR(mode) and _is_own_group(about.st_gid))


def _is_own_group(gid: int) -> bool:
    """Return whether this user is the only member of a group. Many systems create such a group for each user."""
    try:
        me, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == me.pw_gid and group.gr_name == me.pw_name and set(group.gr_mem) <= {me.pw_name}


def user_name() -> str:
    """Return the name of the user of this process, or its number if it has no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
