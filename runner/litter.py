"""What git processes that were killed left in a repository of the runner's: unfinished packs, and locks.

A lock that nobody holds stops every later change for good, and unfinished packs are never removed by git itself while
its automatic maintenance is off. Called while the state folder is locked, when no git of this runner's is at work.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def remove_litter(repository: Path) -> list[str]:
    """Remove it, and return the names of what was removed, from the repository's folder on."""
    removed = []
    for path in [*unfinished(repository), *_locks(repository)]:
        with suppress(FileNotFoundError):
            path.unlink()
            removed.append(str(path.relative_to(repository)))
    return removed


def unfinished(repository: Path) -> Iterator[Path]:
    """Yield the files in which git gathers objects, before they have their names."""
    objects = repository / "objects"
    yield from objects.glob("pack/tmp_*")
    yield from objects.glob("pack/.tmp-*")
    yield from objects.glob("[0-9a-f][0-9a-f]/tmp_obj_*")
    yield from objects.glob("tmp_objdir-*/**/tmp_*")


def _locks(repository: Path) -> Iterator[Path]:
    yield from repository.glob("*.lock")
    yield from (repository / "objects" / "info").glob("*.lock")
    yield from (path for path in (repository / "refs").rglob("*.lock") if path.is_file())
