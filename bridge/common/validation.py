"""Turns pydantic's validation errors into one sentence."""

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError


def describe_all(error: ValidationError, known: Iterable[str] = ()) -> str:
    """Return a sentence on each thing pydantic found wrong.

    For an unknown field of the top level it names the nearest of the ``known`` ones.
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
    """Return a sentence on the first thing pydantic found wrong, and the field it is about."""
    return _sentence(error.errors(include_url=False, include_input=False)[0])


def _sentence(first: Any) -> tuple[str, str]:
    field = ".".join(str(part) for part in first["loc"] if part not in ("bool", "int", "float", "str"))
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return f"{field} is not a known field", field
    if first["type"] == "missing":
        return f"{field} is missing", field
    return f"{field}: {message}" if field else message, field
