"""Finds commits beyond the limit in the history that a branch brings, not only at its tip.

Git reads a commit as a whole when it walks past it, and each fetch walks down from all references. So one large commit
anywhere below a reference would slow down every later fetch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from bridge.bus import objects
from bridge.common import limits
from bridge.system import git_output
from bridge.system.git import Git

_AT_ONCE = 500
# A line has the ids of a commit and its parents. It may be as long as a commit within the limit.
_PORTION_BYTES = 256 * 1024


def with_heavy_history(
    git: Git, tips: Collection[str], *, but: str, timeout: float | None = None
) -> set[str]:
    """Return the tips whose new history holds a commit beyond the limit.

    New is what no reference reaches, except references that match ``but``. The tips are known to be within the limit.

    Raises:
        ProcessError: it took longer than ``timeout`` seconds.
    """
    if not tips:
        return set()
    flags = ("--parents", "--topo-order", "--reverse", "--stdin", "--not", f"--exclude={but}", "--all")
    child = git.start("rev-list", *flags, timeout=timeout)
    try:
        child.write("".join(f"{oid}\n" for oid in tips))
        heavy: set[str] = set()
        weighed = set(tips)
        for some in _portions(git_output.each_line(child.chunks(), limits.COMMIT_BYTES)):
            lines = [git_output.with_parents(line) for line in some]
            for oid, size in objects.sizes(git, [oid for oid, _ in lines if oid not in weighed]).items():
                if size > limits.COMMIT_BYTES:
                    heavy.add(oid)
            # Parents come before their children.
            for oid, parents in lines:
                if not heavy.isdisjoint(parents):
                    heavy.add(oid)
    finally:
        child.close()
    return heavy.intersection(tips)


def _portions(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield lines in lists that are neither long nor large: a commit may name twenty thousand parents."""
    some: list[bytes] = []
    size = 0
    for line in lines:
        some.append(line)
        size += len(line)
        if len(some) == _AT_ONCE or size >= _PORTION_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some
