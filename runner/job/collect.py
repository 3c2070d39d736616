"""Collects the reports from a job's folder: only regular files, never through a link, within limits."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path, PurePosixPath

from bridge.bus import wire
from bridge.bus.trees import CaseInsensitivePaths
from bridge.common import limits as bounds
from bridge.presets import Preset
from runner.job.redact import Redactor

MAX_SEEN = 100_000
# Bound on the files, and on the patterns, that are named: together fewer than a reader's limit `ANSWER_NOTES`.
MAX_SKIPPED = 50
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass
class Collected:
    """The reports by path; files that were not collected, with reasons; and patterns that matched nothing."""

    files: dict[str, bytes] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)

    def skip(self, path: str, reason: str) -> None:
        """Record a file that is not collected. Only the first ``MAX_SKIPPED`` are named."""
        if len(self.skipped) < MAX_SKIPPED:
            self.skipped.append(f"{path}: {reason}")
        elif len(self.skipped) == MAX_SKIPPED:
            self.skipped.append("and more")


def collect(
    preset: Preset,
    tree: Path,
    redactor: Redactor | None = None,
    attend: Callable[[], None] = lambda: None,
) -> Collected:
    """Read the report files that the preset declares.

    Each folder is opened by descriptor and without following links, so a link that is swapped in meanwhile has no
    effect. Only regular files with one hard link are read, within the preset's bounds for one file and for all files.
    A report that contains one of the runner's secrets is not collected. Before each file, ``attend`` is called.
    """
    collected = Collected(unmatched=[*preset.collect])
    limits = preset.limits
    places = CaseInsensitivePaths()
    room = limits.all_reports_mb << 20
    for path, name, folder in _candidates(preset.collect, tree, collected):
        attend()
        if len(collected.files) >= limits.reports:
            collected.skip(path, f"more than {limits.reports} reports")
            break
        data = _read(name, folder, _most(preset, name))
        if isinstance(data, str):
            collected.skip(path, data)
        elif not places.add(path):
            collected.skip(path, "another report has the same name on file systems that ignore case")
        elif len(data) > room:
            collected.skip(path, f"all reports together are larger than {limits.all_reports_mb} MiB")
        elif redactor and (redactor.contains_secret(data) or redactor.contains_secret(path.encode())):
            collected.skip(path, "it holds a secret of this host")
        else:
            collected.files[path] = data
            room -= len(data)
    return collected


def _most(preset: Preset, name: str) -> int:
    """Return the maximum size of a report, which is smaller if the gate judges it: each reader parses such a report."""
    most = preset.limits.report_mb << 20
    if not preset.gated or not name.endswith(".json"):
        return most
    return min(most, bounds.REQUESTERS_REPORT_BYTES if preset.code == "request" else bounds.REPORT_BYTES)


def _candidates(patterns: list[str], tree: Path, collected: Collected) -> Iterator[tuple[str, str, int]]:
    """Yield path, name and open folder of each file that a pattern matches, in order.

    Only the reports folder is searched, and only as deep as a pattern can match.
    """
    if not patterns:
        return
    listed = 0
    with suppress(OSError):
        for base, folder, names in _walk(tree, wire.REPORTS, patterns, collected):
            listed += len(names)
            for name in names:
                path = f"{base}/{name}"
                matching = [pattern for pattern in patterns if _matches(path, pattern)]
                if not matching:
                    continue
                collected.unmatched = [pattern for pattern in collected.unmatched if pattern not in matching]
                if wire.is_answer_path(path):
                    yield path, name, folder
                else:
                    reason = "not a plain name, or one with a meaning to git or a file system"
                    collected.skip(ascii(path), reason)
            if listed > MAX_SEEN:
                collected.skip(base, f"more than {MAX_SEEN} files: the rest was not looked at")
                return


def _walk(
    tree: Path, start: str, patterns: list[str], collected: Collected
) -> Iterator[tuple[str, int, list[str]]]:
    """Yield each folder's path, descriptor and names, from ``start`` down."""
    opened = [os.open(tree, _FOLDER)]
    try:
        for part in PurePosixPath(start).parts:
            opened.append(_open(part, opened[-1], start, collected))
        yield from _below(start, opened[-1], patterns, collected)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _below(
    base: str, folder: int, patterns: list[str], collected: Collected
) -> Iterator[tuple[str, int, list[str]]]:
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in islice(entries, MAX_SEEN + 1))
    yield base, folder, names
    depth = len(PurePosixPath(base).parts) + 1
    # Only folders on the path of a pattern are entered.
    above = {"/".join(parts[:depth]) for p in patterns if len(parts := PurePosixPath(p).parts) > depth}
    for name in names if above else ():
        path = f"{base}/{name}"
        if not any(_matches(path, pattern) for pattern in above):
            continue
        with suppress(OSError):
            inner = _open(name, folder, path, collected)
            try:
                yield from _below(path, inner, patterns, collected)
            finally:
                os.close(inner)


def _open(name: str, folder: int, path: str, collected: Collected) -> int:
    """Open a folder, but no link, and record why that fails if there is a folder."""
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except OSError as error:
        with suppress(OSError):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder).st_mode):
                is_link = stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode)
                refused = f"a folder that cannot be opened ({error.strerror})"
                reason = "a link to a folder, which is not followed" if is_link else refused
                collected.skip(ascii(path)[1:-1], reason)
        raise


def _matches(path: str, pattern: str) -> bool:
    """Match a path part by part, so that ``*`` does not match a slash."""
    parts, globs = PurePosixPath(path).parts, PurePosixPath(pattern).parts
    return len(parts) == len(globs) and all(map(fnmatchcase, parts, globs))


def _read(name: str, folder: int, limit: int) -> bytes | str:
    """Return a file's content, or why it is not collected."""
    try:
        descriptor = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):  # the codes of O_NOFOLLOW
            return "a link, which is not followed"
        return f"cannot be opened ({error.strerror})"
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
        os.close(descriptor)
        return "it has more than one name" if stat.S_ISREG(about.st_mode) else "not a regular file"
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(limit + 1)
    return data if len(data) <= limit else f"larger than {limit >> 20} MiB"
