"""Says in one sentence what is wrong with a value: for pydantic's validation errors, and for secrets."""

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

# Sixteen characters of hexadecimal digits are 64 bits.
_CHARACTERS = 16
_DIFFERENT = 5


def describe_all(error: ValidationError, known: Iterable[str] = ()) -> str:
    """Return a sentence about each fault that pydantic reports.

    For an unknown field at the top level, it names the most similar one of the ``known`` fields.
    """
    sentences = []
    for fault in error.errors(include_url=False, include_input=False):
        sentence = _sentence(fault)[0]
        if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1:
            near = difflib.get_close_matches(str(fault["loc"][0]), list(known), n=1)
            sentence += f" (did you mean {near[0]}?)" if near else ""
        sentences.append(sentence)
    return "; ".join(dict.fromkeys(sentences))


def describe(error: ValidationError) -> tuple[str, str]:
    """Return a sentence about the first fault that pydantic reports, and the field that it concerns."""
    return _sentence(error.errors(include_url=False, include_input=False)[0])


def _sentence(first: Any) -> tuple[str, str]:
    field = ".".join(str(part) for part in first["loc"] if part not in ("bool", "int", "float", "str"))
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return f"{field} is not a known field", field
    if first["type"] == "missing":
        return f"{field} is missing", field
    return f"{field}: {message}" if field else message, field


def weakness(secret: str) -> str | None:
    """Return why others could guess a secret that somebody chose, or no program could send it; None if it will do."""
    if len(secret) < _CHARACTERS or not secret.isascii() or not secret.isprintable():
        return f"has to be one line of at least {_CHARACTERS} ASCII characters"
    if len(set(secret)) < _DIFFERENT:
        return f"has to have at least {_DIFFERENT} different characters"
    return None
