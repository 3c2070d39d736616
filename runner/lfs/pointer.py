"""The Git LFS pointer file, as version 1 of its specification defines it."""

import re
from dataclasses import dataclass

# The specification says that a pointer is smaller than this.
MAX_BYTES = 1024
# Lines of extensions may come before the id. Extensions change the content, so the object is not the file itself.
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n"
    rb"(?P<extensions>(?:ext-[0-9]-[\w.-]+ sha256:[0-9a-f]{64}\n)*)"
    rb"oid sha256:(?P<oid>[0-9a-f]{64})\n"
    rb"size (?P<size>0|[1-9][0-9]{0,14})\n"
)


class Missing(Exception):  # noqa: N818 - one object, of which the others are independent
    """An object cannot be had from the bus. The message says why."""


@dataclass(frozen=True)
class Pointer:
    """A pointer file in a request's tree: its path, and the id and size of its object."""

    path: str
    oid: str
    size: int
    plain: bool = True


def parse_pointer(path: str, content: bytes) -> Pointer | None:
    """Parse a pointer file; None if the file is not a pointer."""
    match = _POINTER.fullmatch(content) if len(content) < MAX_BYTES else None
    if match is None:
        return None
    return Pointer(path, match["oid"].decode(), int(match["size"]), plain=not match["extensions"])
