"""Reads trees of commits within limits, because a few objects can unfold to more files than fit on any disk.

What is beyond the limits is a VerificationError.
"""

from bridge.bus import objects
from bridge.common import limits
from bridge.errors import VerificationError
from bridge.system import git_output
from bridge.system.git import Git
from bridge.system.git_output import Entry

_AT_ONCE = 16


def files_below(git: Git, commit: str, folder: str) -> dict[str, Entry]:
    """Return all entries below a folder of a commit except folders, by path; nothing if there is no such folder."""
    path = f"{commit}:{folder}"
    there = objects.locate(git, [path]).get(path)
    return _differing(git, folder, None, there.oid if there and there.kind == "tree" else None)


def changed_paths(git: Git, before: str, after: str) -> list[str]:
    """Return the paths of the files that differ between two commits."""
    paths = [f"{commit}:" for commit in (before, after)]
    located = objects.locate(git, paths)
    if len(located) < len(paths):
        raise VerificationError("a commit is missing, or too large to be read")
    return sorted(_differing(git, "", *(located[path].oid for path in paths)))


def _differing(git: Git, base: str, before: str | None, after: str | None) -> dict[str, Entry]:
    """Return the entries in which two trees differ; for deleted ones, the old entry."""
    nodes: dict[str, Entry] = {}
    pairs = [(base, before, after)]
    while pairs:
        here, pairs = pairs[:_AT_ONCE], pairs[_AT_ONCE:]
        trees = _read(git, [oid for _, *oids in here for oid in oids if oid])
        for path, old, new in here:
            before_names, now_names = trees.get(old or "", {}), trees.get(new or "", {})
            for name in before_names.keys() | now_names.keys():
                was, now = before_names.get(name), now_names.get(name)
                if was == now:
                    continue
                inner = f"{path}/{name}" if path else name
                if len(inner) > limits.PATH_LENGTH:
                    raise VerificationError(f"a path is longer than {limits.PATH_LENGTH} characters")
                folders = [node.oid if node and node.kind == "tree" else None for node in (was, now)]
                if any(folders):
                    pairs.append((inner, folders[0], folders[1]))
                if leaf := next((node for node in (now, was) if node and node.kind != "tree"), None):
                    nodes[inner] = leaf
                if len(nodes) + len(pairs) > limits.PATHS:
                    where = f"below {base}" if base else "and the request"
                    raise VerificationError(f"more than {limits.PATHS} files differ {where}")
    return nodes


def _read(git: Git, oids: list[str]) -> dict[str, dict[str, Entry]]:
    contents = objects.read_many(git, oids, max_bytes=limits.TREE_BYTES, kind="tree")
    if None in contents:
        message = f"a folder of the tree is missing, or larger than {limits.TREE_BYTES} bytes in git"
        raise VerificationError(message)
    return {oid: _named(raw or b"") for oid, raw in zip(oids, contents, strict=True)}


def _named(raw: bytes) -> dict[str, Entry]:
    """Return the entries of a stored folder by name. An error if git and other readers could disagree about a name."""
    named: dict[str, Entry] = {}
    last = b""
    for entry in git_output.tree(raw):
        sort_key = git_output.encode(entry.path) + (b"/" if entry.kind == "tree" else b"")
        if entry.path in named or sort_key <= last or "/" in entry.path:
            raise VerificationError(f"a folder of the tree has {entry.path!a} twice, or out of order")
        named[entry.path] = entry
        last = sort_key
    return named


class CaseInsensitivePaths:
    """ASCII paths that can lie beside each other even on file systems that ignore case, as on macOS and Windows."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def add(self, path: str) -> bool:
        """Return whether a path can be added: neither it nor one of its folders conflicts with another path."""
        parts = path.split("/")
        places = {"/".join(parts[:i]).lower(): "/".join(parts[:i]) + "/" for i in range(1, len(parts))}
        if path.lower() in self._seen or any(self._seen.get(at, as_) != as_ for at, as_ in places.items()):
            return False
        self._seen |= places
        self._seen[path.lower()] = path
        return True
