"""Lists and checks a request's tree entry by entry: a small push can contain more names than fit into memory."""

import os
import unicodedata
from collections.abc import Iterator
from hashlib import blake2b
from itertools import takewhile
from pathlib import Path, PurePosixPath

from bridge.bus import objects, wire
from bridge.common import limits
from bridge.system import git_output
from bridge.system.git import Git
from bridge.system.git_output import Entry
from runner.refusal import Refusal, Unable

_ENTRY_BYTES = 512
_SPARE_BYTES = 64
_SHOWN_CHARS = 80
# The type in an entry's mode: folder, file, link, submodule.
_KINDS = (0o040000, 0o100000, 0o120000, 0o160000)
# Folders that exist before anything is written.
_PRESENT = (wire.REPORTS, str(PurePosixPath(wire.REPORTS).parent))


def tree_entries(git: Git, commit: str, most: int, *paths: str, folders: bool = False) -> Iterator[Entry]:
    """Yield the files, links and submodules of a commit's tree; with ``folders`` only its folders and submodules.

    Refusal if there are more than ``most`` entries, or too many bytes.
    """
    flags, noun = (["-d"], "folders") if folders else ([], "files")
    top = objects.locate(git, [f"{commit}:"])[f"{commit}:"].oid
    child = git.start("ls-tree", "-z", "-r", "-l", *flags, "--full-tree", top, "--", *paths)
    count = size = 0
    rest = b""
    try:
        for chunk in child.chunks():
            size += len(chunk)
            if size > (most + 1) * _ENTRY_BYTES:
                raise Unable("tree_too_large", f"the tree holds far more than {most} {noun}")
            whole, _, rest = (rest + chunk).rpartition(b"\0")
            for entry in git_output.entries(whole + b"\0") if whole else ():
                count += 1
                if count <= most:
                    yield entry
        if count > most:
            raise Unable("tree_too_large", f"the tree holds {count} {noun}; {most} are the most")
    finally:
        child.close()


class TreeNameChecker:
    """Checks the names of one tree one after another. It remembers only a digest of each."""

    def __init__(self, root: Path, most_folders: int) -> None:
        # A little less than the file system's limit, because jobs write files beside these.
        there = root if root.exists() else root.parent
        self._longest_path = os.pathconf(there, "PC_PATH_MAX") - len(os.fsencode(root)) - _SPARE_BYTES
        self._longest_name = os.pathconf(there, "PC_NAME_MAX")
        self._most_folders = most_folders
        self._folders = 0
        self._seen: dict[int, int] = {}
        # The previous entry's folders, each with its case-folded path, for reuse: entries are listed folder by folder.
        self._last: list[tuple[str, str]] = []

    def check(self, path: str) -> None:
        """Raise Refusal for a name that is too long, leads elsewhere, or may equal another name on some system."""
        parts = path.split("/")
        encoded = os.fsencode(path)
        if len(encoded) > self._longest_path or max(map(len, encoded.split(b"/"))) > self._longest_name:
            message = f"the tree holds a name that is too long: {path[:_SHOWN_CHARS]!a}..."
            raise Refusal("hostile_tree", message)
        same = (known == part for (known, _), part in zip(self._last, parts[:-1], strict=False))
        shared = sum(takewhile(bool, same))
        del self._last[shared:]
        folded = self._last[-1][1] if self._last else ""
        for n in range(shared, len(parts)):
            if _is_forbidden(parts[n]):
                raise Refusal("hostile_tree", f"the tree holds {path!a}")
            folded += f"/{fold(parts[n])}"
            self._note("/".join(parts[: n + 1]), folded[1:], path, is_folder=n + 1 < len(parts))
            if n + 1 < len(parts):
                self._last.append((parts[n], folded))

    def _note(self, here: str, folded: str, path: str, *, is_folder: bool) -> None:
        if is_folder:
            self._folders += 1
            if self._folders > self._most_folders:
                raise Unable("tree_too_large", f"the tree holds more than {self._most_folders} folders")
        elif folded in _PRESENT:
            raise Refusal("hostile_tree", f"the tree holds {path!a}, where the folder of reports is")
        spelled = _digest(f"{here}\0{is_folder}")
        if self._seen.setdefault(_digest(folded), spelled) != spelled:
            message = f"the tree holds {path!a} in two spellings that a file system may take for one"
            raise Refusal("hostile_tree", message)


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(os.fsencode(text), digest_size=16).digest(), "big")


def check_modes(git: Git, commit: str, submodules: list[Entry], most: int) -> None:
    """Refuse entries with a mode unknown to git (device, FIFO, socket), which git lists as submodules."""
    if not submodules:
        return
    holders = {entry.path.rpartition("/")[0] for entry in submodules}
    oids = dict.fromkeys([objects.locate(git, [f"{commit}:"])[f"{commit}:"].oid] if "" in holders else [])
    for entry in tree_entries(git, commit, most + len(submodules), folders=True):
        if entry.kind == "tree" and entry.path in holders:
            oids[entry.oid] = None
    for oid in oids:
        (raw,) = objects.read_many(git, [oid], max_bytes=limits.TREE_BYTES, kind="tree")
        if raw is None:
            message = f"a folder with a submodule has more than {limits.TREE_BYTES >> 20} MiB of names"
            raise Unable("tree_too_large", message)
        if any(mode & 0o170000 not in _KINDS for mode in _modes(raw, len(oid) // 2)):
            raise Refusal("hostile_tree", "the tree holds an entry of a kind that git does not know")


def _modes(tree: bytes, id_bytes: int) -> Iterator[int]:
    """Yield the mode of each entry of a tree object: mode in octal, space, name, NUL, id."""
    at = 0
    while at < len(tree):
        yield int(tree[at : tree.index(b" ", at)], 8)
        at = tree.index(b"\0", at) + 1 + id_bytes


def _is_forbidden(part: str) -> bool:
    """Return whether a name is invalid, leads elsewhere, or means ``.git`` on some file system."""
    pieces = [fold(piece.partition(":")[0]) for piece in part.split("\\")]
    return not fold(part) or any(piece in (".git", "git~1") for piece in pieces)


_IGNORED = dict.fromkeys([*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF])


def fold(name: str) -> str:
    """Fold a name like file systems that ignore case, normalise Unicode and skip zero-width characters."""
    plain = unicodedata.normalize("NFD", name).translate(_IGNORED)
    return unicodedata.normalize("NFD", plain.casefold()).rstrip(" .")
