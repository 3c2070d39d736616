"""Looks up git objects by name, and checks whether a history is small enough, by the sizes of objects alone.

Git reads a commit as a whole when it walks past it, and each fetch walks down from all references. So one large commit
anywhere below a reference would slow down every later fetch.
"""

from collections.abc import Collection, Iterable, Iterator

from bridge.common import limits
from bridge.system import batch, git_output
from bridge.system.git import Git
from bridge.system.git_output import ObjectInfo

MAX_BYTES_BY_KIND = {"commit": limits.COMMIT_BYTES, "tree": limits.TREE_BYTES, "tag": limits.COMMIT_BYTES}

# At most this many commits, or bytes of their lines, are checked at once.
_HISTORY_COMMITS = 500
# A line lists a commit and its parents, and may be as long as the largest allowed commit.
_HISTORY_BYTES = 256 * 1024


def locate(
    git: Git,
    names: Iterable[str],
    too_large: dict[str, ObjectInfo] | None = None,
    known: dict[str, ObjectInfo | None] | None = None,
) -> dict[str, ObjectInfo]:
    """Return id, kind and size of the object of each name: an id, ``<commit>:<path>``, or ``<commit>^:<path>``.

    Names of missing objects are left out, and names that lead through a commit or folder beyond the limits: git reads
    these whole, so the size of each is checked first. ``too_large`` gets the oversized object for each such name.
    """
    steps = {name: _steps(name) for name in dict.fromkeys(names)}
    at: dict[str, str] = {name: parts[0] for name, parts in steps.items() if parts}
    there: dict[str, ObjectInfo] = {}
    if not at:
        return there
    with batch.releasing(git.acquire("cat-file", "--batch-check")) as process:
        objects: dict[str, ObjectInfo | None] = {} if known is None else known
        depth = 1
        while at:
            new = [revision for revision in dict.fromkeys(at.values()) if revision not in objects]
            process.ask(new)
            objects |= {revision: git_output.object_of(process.child.line()) for revision in new}
            following: dict[str, str] = {}
            for name, revision in at.items():
                here, parts = objects.get(revision), steps[name]
                if here is None:
                    continue
                if depth == len(parts):
                    there[name] = here
                elif here.size <= MAX_BYTES_BY_KIND.get(here.kind, -1):
                    following[name] = f"{here.oid}{parts[depth]}"
                elif too_large is not None and here.kind in MAX_BYTES_BY_KIND:
                    too_large[name] = here
            at, depth = following, depth + 1
    return there


def _steps(name: str) -> list[str]:
    """Split a name into steps for git: each step is appended to the id that the previous one gave."""
    root, colon, path = name.partition(":")
    # Git takes one name per line. A line break in a stranger's path would shift all names after it.
    if not root or "\n" in name or "\0" in name:
        return []
    steps = [root[:-1], "^"] if root.endswith("^") else [root]
    if colon:
        parts = path.split("/") if path else []
        if len(parts) > limits.PATH_PARTS or any(part in ("", ".", "..") for part in parts):
            return []
        steps += ["^{tree}", *(f":{part}" for part in parts)]
    return steps


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
