"""Taking the reports out of a workspace: regular files only, and never through a link."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from bridge.presets import Preset

_MAX_SEEN = 100_000
# What every file system, every tree of git and every log can hold.
_PLAIN = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*/)*[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass
class Collected:
    """The reports by path, and what was left behind with the reason."""

    files: dict[str, bytes] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


def collect(preset: Preset, tree: Path) -> Collected:
    """Read the files that the preset declares.

    Every folder is opened by descriptor and without following links, so a link that is swapped in while this runs leads
    nowhere; only regular files with one name are read, and each only up to the preset's bound.
    """
    found = Collected()
    if not preset.collect:
        return found
    seen = 0
    limit = preset.limits.report_mb << 20
    for folder, folders, names, descriptor in os.fwalk(tree, follow_symlinks=False):
        folders.sort()
        base = Path(folder).relative_to(tree)
        for name in sorted(names):
            seen += 1
            path = (base / name).as_posix()
            if not any(_matches(path, pattern) for pattern in preset.collect):
                continue
            if len(found.files) >= preset.limits.reports:
                found.skipped.append(f"{path}: more than {preset.limits.reports} reports")
                return found
            if not _PLAIN.fullmatch(path):
                found.skipped.append(f"{path!a}: not a plain name")
                continue
            data = _read(name, descriptor, limit)
            if isinstance(data, bytes):
                found.files[path] = data
            else:
                found.skipped.append(f"{path}: {data}")
        if seen > _MAX_SEEN:
            found.skipped.append(f"more than {_MAX_SEEN} files: the rest was not looked at")
            return found
    return found


def _matches(path: str, pattern: str) -> bool:
    """Match part by part, so that `*` does not cross a slash."""
    parts, globs = PurePosixPath(path).parts, PurePosixPath(pattern).parts
    return len(parts) == len(globs) and all(map(fnmatchcase, parts, globs))


def _read(name: str, folder: int, limit: int) -> bytes | str:
    """Return a file's content, or why it is not taken."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        return f"cannot be opened ({error.strerror})"
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            return "not a regular file"
        if about.st_nlink != 1:
            return "it has more than one name"
        data = file.read(limit + 1)
    return data if len(data) <= limit else f"larger than {limit >> 20} MiB"
