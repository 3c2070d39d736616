"""Creates git objects in memory and stores them together: one git process unpacks a pack of them.

The objects are not checked. A tree may keep an entry that git's own commands would refuse to write, for example one
whose mode does not fit its object. Such trees come from strangers, and answers are built upon them.
"""

import hashlib
import time
import zlib
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from bridge.system import git_output
from bridge.system.git import Git
from bridge.system.git_output import decode, encode

# A larger file is passed to git on its own, and is not copied here.
_LARGE = 1 << 20
# How many bytes of small objects are collected before they are stored together.
_MOST_COLLECTED = 8 << 20
_TYPES = {"commit": 1, "tree": 2, "blob": 3}

# Git names objects by SHA-1; nothing here relies on it for secrecy or trust.
_hash = partial(hashlib.sha1, usedforsecurity=False)


@dataclass(frozen=True)
class Identity:
    """The author and committer of a commit."""

    name: str
    email: str


class Writer:
    """Objects of one repository that are not stored yet."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._made: dict[str, tuple[str, bytes]] = {}

    def blob(self, content: bytes) -> str:
        """Add a file and return its id."""
        return write_blob(self._git, content) if len(content) > _LARGE else self._add("blob", content)

    def tree(
        self, entries: Mapping[str, tuple[str, str]], upon: bytes = b"", without: Container[str] = ()
    ) -> str:
        """Add a folder, given as mode and id of each name, and return its id.

        The entries of ``upon``, a folder as git stores it, are added except those in ``without``. There may be
        a hundred thousand of them, so they are copied as bytes.
        """
        named = [(encode(name), mode, oid) for name, (mode, oid) in entries.items()]
        new = sorted(
            (_sort_key(name, mode), f"{mode.lstrip('0')} ".encode() + name + b"\0" + bytes.fromhex(oid))
            for name, mode, oid in named
        )
        raw = bytearray()
        for start, end, mode, name in git_output.tree_lines(upon):
            if decode(name) in without:
                continue
            while new and new[0][0] < _sort_key(name, mode):
                raw += new.pop(0)[1]
            raw += upon[start:end]
        return self._add("tree", bytes(raw) + b"".join(line for _, line in new))

    def commit(self, tree: str, parents: Iterable[str], message: str, who: Identity) -> str:
        """Add a commit with the current time, and return its id."""
        by = f"{who.name} <{who.email}> {int(time.time())} +0000"
        upon = "".join(f"parent {parent}\n" for parent in parents)
        return self._add("commit", encode(f"tree {tree}\n{upon}author {by}\ncommitter {by}\n\n{message}"))

    def store(self) -> None:
        """Store the added objects."""
        if self._made:
            self._git("unpack-objects", "-q", stdin=_pack(self._made.values()))
            self._made.clear()

    def _add(self, kind: str, content: bytes) -> str:
        oid = _hash(f"{kind} {len(content)}\0".encode() + content).hexdigest()
        self._made[oid] = (kind, content)
        if sum(len(data) for _, data in self._made.values()) > _MOST_COLLECTED:
            self.store()
        return oid


def write_blob(git: Git, content: bytes) -> str:
    """Store a blob and return its id."""
    return git("hash-object", "-w", "--stdin", stdin=content).text


def _pack(objects: Collection[tuple[str, bytes]]) -> bytes:
    """Return objects as a pack: a header, each object with its kind and size, and a checksum."""
    packed = (_head(_TYPES[kind], len(content)) + zlib.compress(content, 1) for kind, content in objects)
    pack = b"PACK" + (2).to_bytes(4, "big") + len(objects).to_bytes(4, "big") + b"".join(packed)
    return pack + _hash(pack).digest()


def _head(kind: int, size: int) -> bytes:
    """Return kind and size in a pack's encoding: four bits of the size, then seven in each further byte."""
    head, byte, size = bytearray(), kind << 4 | size & 15, size >> 4
    while size:
        head.append(byte | 128)
        byte, size = size & 127, size >> 7
    return bytes([*head, byte])


def _sort_key(name: bytes, mode: str) -> bytes:
    """Return git's sort key of an entry: a folder sorts as if its name ended with a slash."""
    return name + b"/" if mode.lstrip("0") == "40000" else name
