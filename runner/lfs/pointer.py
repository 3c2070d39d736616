"""The Git LFS pointer file, as version 1 of its specification defines it."""

from __future__ import annotations

import re
from dataclasses import dataclass

# The specification: a pointer is smaller than this.
MAX_BYTES = 1024
# Extensions, which change the content, may come before the id. Such a file cannot be made from its object alone.
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n"
    rb"(?P<extensions>(?:ext-[0-9]-[\w.-]+ sha256:[0-9a-f]{64}\n)*)"
    rb"oid sha256:(?P<oid>[0-9a-f]{64})\n"
    rb"size (?P<size>0|[1-9][0-9]{0,14})\n"
)


@dataclass(frozen=True)
class Pointer:
    """A file of a request's tree that is only a pointer: where it lies, and what it stands for."""

    path: str
    oid: str
    size: int
    plain: bool = True


def parse_pointer(path: str, content: bytes) -> Pointer | None:
    """Return what a file points to, or None where it is no pointer."""
    found = _POINTER.fullmatch(content) if len(content) < MAX_BYTES else None
    if found is None:
        return None
    return Pointer(path, found["oid"].decode(), int(found["size"]), plain=not found["extensions"])
