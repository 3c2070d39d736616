"""The only module that parses git's output.

Git ends lines with LF, or entries with NUL on request. Names are bytes: a branch's name may contain anything but
control characters, so Python's ``splitlines`` could split a name. Bytes that are not UTF-8 become surrogates, as with
``os.fsdecode``. Our checks of names refuse surrogates, and git gets the same bytes back.
"""

import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from bridge.common import limits
from bridge.errors import InfrastructureError

# `<object id> <name>` or, from ls-remote, `<object id>\t<name>`.
_REF = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64})[ \t](.+)")
# The line of ls-remote before a symbolic reference: `ref: <target>\t<name>`.
_LINK = re.compile(rb"ref: ([^\t]*)\t(.+)")
_PORCELAIN_FIELDS = 3
_MODE = re.compile(rb"[0-7]+")
# Git uses the last 16 bits of a mode, whatever is before them.
_MODE_DIGITS = 6
_PARENTS = re.compile(rb"tree [0-9a-f]+\n((?:parent [0-9a-f]+\n)*)")
_OBJECTS = {b"blob": "blob", b"tree": "tree", b"commit": "commit", b"tag": "tag"}
_KIND_AND_SIZE = 2
_ID_BYTES = 20
_KINDS = {"040000": "tree", "160000": "commit"}

# Git's message if an object's type differs from the type that another object expects.
_WRONG_KIND = re.compile(
    rb"^error: object [0-9a-f]+ is an? \w+, not an? \w+|^fatal: invalid (?:tree|blob|commit|tag)$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Entry:
    """One line of a tree."""

    mode: str
    kind: str
    oid: str
    size: int
    path: str

    @property
    def is_file(self) -> bool:
        """Return whether the entry is a regular file, executable or not."""
        return self.mode in ("100644", "100755")


class ObjectInfo(NamedTuple):
    """An object that git knows: its id, its kind and its size in bytes."""

    oid: str
    kind: str
    size: int


def decode(data: bytes) -> str:
    """Return git's bytes as text that ``encode`` turns into the same bytes."""
    return data.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """Return the bytes from which ``decode`` made a text."""
    return text.encode("utf-8", "surrogateescape")


def lines(data: bytes | str) -> list[str]:
    """Return the lines of git's output, without line ends and empty lines."""
    text = decode(data) if isinstance(data, bytes) else data
    return [line for line in text.split("\n") if line]


def refs(data: bytes) -> dict[str, str]:
    """Return ``{name: object id}`` from for-each-ref (``%(objectname) %(refname)``) or from ls-remote."""
    return dict(each_ref(line for line in data.split(b"\n")))


def each_ref(listed: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Yield name and object id from each line that is a reference. Other lines are skipped."""
    for line in listed:
        if match := _REF.fullmatch(line):
            yield decode(match[2]), match[1].decode()


def each_listed(listed: Iterable[bytes]) -> Iterator[tuple[str, str, bool]]:
    """Yield each reference from ``ls-remote --symref``: its name, its object id, and whether it is symbolic."""
    link = b""
    for line in listed:
        if named := _LINK.fullmatch(line):
            link = named[2]
        elif match := _REF.fullmatch(line):
            yield decode(match[2]), match[1].decode(), match[2] == link


def head(listed: Iterable[bytes]) -> tuple[str, str] | None:
    """Return the target and the object id of ``HEAD`` from ``ls-remote --symref``; None if it is unborn.

    The target is empty if ``HEAD`` is detached.
    """
    target = ""
    for line in listed:
        if (named := _LINK.fullmatch(line)) and named[2] == b"HEAD":
            target = decode(named[1])
        elif (match := _REF.fullmatch(line)) and match[2] == b"HEAD":
            return target, match[1].decode()
    return None


def each_line(chunks: Iterable[bytes], most: int = limits.LINE_BYTES) -> Iterator[bytes]:
    """Yield the lines of a stream. A part of a line longer than ``most`` bytes, which git never prints, is left out."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
        rest = rest[:most]
    if rest:
        yield rest


def entries(data: bytes) -> list[Entry]:
    """Return the entries that ``ls-tree -z`` printed, with ``-l`` or without."""
    listed = []
    for line in data.split(b"\0")[:-1]:
        meta, _, path = line.partition(b"\t")
        mode, kind, oid, *size = meta.decode().split()
        listed.append(Entry(mode, kind, oid, int(size[0]) if size and size[0] != "-" else 0, decode(path)))
    return listed


def tree(raw: bytes) -> Iterator[Entry]:
    """Yield the entries of a tree as git stores it, with SHA-1: mode, name, NUL, the id in 20 bytes; no sizes.

    Raises:
        InfrastructureError: it is damaged.
    """
    for _, end, mode, name in tree_lines(raw):
        yield Entry(mode, _KINDS.get(mode, "blob"), raw[end - _ID_BYTES : end].hex(), 0, decode(name))


def tree_lines(raw: bytes) -> Iterator[tuple[int, int, str, bytes]]:
    """Yield each entry of a stored tree: where it begins and ends, its mode and its name.

    Raises:
        InfrastructureError: it is damaged.
    """
    at = 0
    while at < len(raw):
        start, end = at, raw.find(b"\0", at)
        mode, _, name = raw[at:end].partition(b" ")
        at = end + 1 + _ID_BYTES
        if end < 0 or at > len(raw) or not _MODE.fullmatch(mode):
            raise InfrastructureError("a folder of a tree is damaged", code="damaged")
        yield start, at, _canonical(mode[-_MODE_DIGITS:]), name


@lru_cache(64)
def _canonical(octal: bytes) -> str:
    """Return a mode as git reads it: old versions wrote further modes beside today's five."""
    mode = int(octal, 8)
    if stat.S_ISREG(mode):
        return "100755" if mode & stat.S_IXUSR else "100644"
    return "120000" if stat.S_ISLNK(mode) else "040000" if stat.S_ISDIR(mode) else "160000"


def object_of(line: bytes) -> ObjectInfo | None:
    """Read a line of ``cat-file --batch-check`` or ``--batch``; None if there is no such object."""
    # For a missing object git repeats the name, which may hold anything.
    oid, *rest = line.rstrip(b"\n").split(b" ")
    if len(rest) != _KIND_AND_SIZE or not rest[1].isdigit() or (kind := _OBJECTS.get(rest[0])) is None:
        return None
    return ObjectInfo(oid.decode(), kind, int(rest[1]))


def push_statuses(porcelain: bytes) -> dict[str, tuple[str, str]]:
    """Return ``{reference: (flag, summary)}`` from ``push --porcelain``, for each reference on the server's side."""
    fields = (line.split("\t") for line in lines(porcelain))
    return {
        field[1].partition(":")[2]: (field[0], field[2])
        for field in fields
        if len(field[0]) == 1 and len(field) == _PORCELAIN_FIELDS
    }


def rejected(porcelain: bytes) -> list[tuple[str, str]]:
    """Return the branches that a push did not move, each with the reason that git gives."""
    statuses = push_statuses(porcelain)
    return [
        (ref.removeprefix("refs/heads/"), reason) for ref, (flag, reason) in statuses.items() if flag == "!"
    ]


def parents(commit: bytes) -> list[str]:
    """Return the parents that a commit object names. As in git, parent lines after another header do not count."""
    match = _PARENTS.match(commit)
    return [line[7:].decode() for line in match[1].split(b"\n")[:-1]] if match else []


def last_paragraph(commit: bytes) -> bytes:
    """Return the last paragraph of a commit object's message."""
    return commit.rpartition(b"\n\n")[2]


def split_parents(line: bytes) -> tuple[str, list[str]]:
    """Return a commit and its parents from a line of ``rev-list --parents``."""
    oid, *above = line.decode("ascii").split(" ")
    return oid, above


def settings(data: bytes) -> list[tuple[str, str]]:
    """Return names and values from ``config -z --get-regexp``. A name without a value counts as true."""
    pairs = (entry.partition(b"\n") for entry in data.split(b"\0")[:-1])
    return [(decode(name), decode(value) if end else "true") for name, end, value in pairs]


def reflog_time(selector: str) -> float | None:
    """Return the Unix time in ``refs/heads/main@{1770000000}``, as ``reflog --date=unix --format=%gd`` writes it."""
    seconds = selector.rpartition("@{")[2].removesuffix("}")
    try:
        return float(seconds) if seconds.isdecimal() else None
    except ValueError:
        return None


def packed_refs(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the names in a file ``packed-refs``, each with its lines: an annotated tag has two."""
    refs: list[tuple[bytes, bytes]] = []
    for line in data.split(b"\n"):
        if line.startswith(b"^"):
            name, before = refs.pop()
            refs.append((name, before + line + b"\n"))
        elif line and not line.startswith(b"#"):
            refs.append((line.partition(b" ")[2], line + b"\n"))
    return refs


def counts(data: bytes) -> dict[str, int]:
    """Return the numbers that ``count-objects -v`` printed; sizes are in KiB."""
    pairs = (line.split(": ") for line in lines(data))
    return {pair[0]: int(pair[1]) for pair in pairs if pair[-1].isdigit()}


def refuses_objects(stderr: bytes) -> bool:
    """Return whether git refused the objects that it fetched, which no retry changes."""
    return b"fsck error" in stderr or _WRONG_KIND.search(stderr) is not None
