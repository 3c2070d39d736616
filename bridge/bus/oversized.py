"""Checks whether a history is small enough, by the sizes of objects alone.

Git reads a commit as a whole when it walks past it, and each fetch walks down from all references. So one large commit
anywhere below a reference would slow down every later fetch.
"""

from collections.abc import Collection, Iterable, Iterator

from bridge.bus.objects import locate
from bridge.common import limits
from bridge.system import git_output
from bridge.system.git import Git

# At most this many commits, or bytes of their lines, are checked at once.
_HISTORY_COMMITS = 500
# A line lists a commit and its parents, and may be as long as the largest allowed commit.
_HISTORY_BYTES = 256 * 1024


def oversized_tips(git: Git, tips: Collection[str], *, but: str, timeout: float | None = None) -> set[str]:
    """Return the tips with a commit in their new history that exceeds the limit. The tips themselves do not.

    New is what no reference reaches, except references that match ``but``.

    Raises:
        ProcessError: it took longer than ``timeout`` seconds.
    """
    if not tips:
        return set()
    flags = ("--parents", "--topo-order", "--reverse", "--stdin", "--not", f"--exclude={but}", "--all")
    child = git.start("rev-list", *flags, timeout=timeout)
    try:
        child.write("".join(f"{oid}\n" for oid in tips))
        oversized: set[str] = set()
        for some in _history_portions(git_output.each_line(child.chunks(), limits.COMMIT_BYTES)):
            lines = [git_output.split_parents(line) for line in some]
            sizes = locate(git, [oid for oid, _ in lines])
            oversized |= {oid for oid, entry in sizes.items() if entry.size > limits.COMMIT_BYTES}
            # Git lists parents before their children.
            for oid, parents in lines:
                if not oversized.isdisjoint(parents):
                    oversized.add(oid)
    finally:
        child.close()
    return oversized.intersection(tips)


def _history_portions(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield lines in lists that are neither long nor large: a commit may name twenty thousand parents."""
    some: list[bytes] = []
    size = 0
    for line in lines:
        some.append(line)
        size += len(line)
        if len(some) == _HISTORY_COMMITS or size >= _HISTORY_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some
