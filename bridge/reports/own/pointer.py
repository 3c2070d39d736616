"""JSON pointers (RFC 6901): a path to one value of a document."""

import re
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

_BAD_ESCAPE = re.compile(r"~(?![01])")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
MISSING = object()


def check_pointer(pointer: str) -> str:
    """Return a pointer; ValueError if it is not well-formed."""
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"must begin with /, as in /{pointer.lstrip('#/.$')[:40]}")
    if _BAD_ESCAPE.search(pointer):
        raise ValueError("must write ~ as ~0 and / in a name as ~1")
    return pointer


Pointer = Annotated[str, StringConstraints(min_length=1, max_length=400), AfterValidator(check_pointer)]


def parts_of(pointer: str) -> list[str]:
    """Return the names and positions that a well-formed pointer consists of."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def written(parts: list[str | int]) -> str:
    """Return the pointer of names and positions; ``/`` alone for the whole document."""
    return "/" + "/".join(str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def value_at(document: object, pointer: str) -> object:
    """Return the value that a pointer names, or ``MISSING``. ``-``, which names no element, is missing too."""
    value = document
    for part in parts_of(pointer):
        if isinstance(value, dict):
            value = value.get(part, MISSING)
        elif isinstance(value, list) and _INDEX.fullmatch(part) and int(part) < len(value):
            value = value[int(part)]
        else:
            return MISSING
    return value
