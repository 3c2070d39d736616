"""Checks that a job left the files that its preset demands: new or rewritten ones, never through a link."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

from runner.job.collect import MAX_SEEN

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# A version of a file: its inode, and the time of its last change, which a job cannot set.
_Version = tuple[int, int]
Matches = Mapping[str, frozenset[_Version]]


class _Budget:
    """The number of names that a search may still examine."""

    def __init__(self) -> None:
        self.left = MAX_SEEN


def find_files(patterns: Sequence[str], tree: Path) -> Matches:
    """Return the regular files below ``tree`` that match each pattern. At most ``MAX_SEEN`` names are looked at."""
    budget = _Budget()
    return {pattern: frozenset(_search(tree, pattern, budget)) for pattern in patterns}


def missing(patterns: Sequence[str], tree: Path, before: Matches) -> list[str]:
    """Return the patterns that match no new or changed file, compared with ``before``."""
    after = find_files(patterns, tree)
    return [pattern for pattern in patterns if after[pattern] <= before[pattern]]


def _search(tree: Path, pattern: str, budget: _Budget) -> Iterator[_Version]:
    with suppress(OSError):
        top = os.open(tree, _FOLDER)
        try:
            yield from _below(top, pattern.split("/"), budget)
        finally:
            os.close(top)


def _below(folder: int, parts: Sequence[str], budget: _Budget) -> Iterator[_Version]:
    first, *rest = parts
    for name in _names(folder, first, budget):
        with suppress(OSError):
            if not rest:
                about = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISREG(about.st_mode):
                    yield about.st_ino, about.st_ctime_ns
                continue
            inner = os.open(name, _FOLDER, dir_fd=folder)
            try:
                yield from _below(inner, rest, budget)
            finally:
                os.close(inner)


def _names(folder: int, pattern: str, budget: _Budget) -> list[str]:
    if "*" not in pattern:
        return [pattern]
    with os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, budget.left)]
    budget.left -= len(names)
    return [name for name in names if fnmatchcase(name, pattern)]
