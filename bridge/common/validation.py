"""Turns pydantic's validation errors into one sentence."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError


def describe(error: ValidationError) -> tuple[str, str]:
    """Return a sentence on the first thing pydantic found wrong, and the field it is about."""
    first: Any = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"] if part not in ("bool", "int", "float", "str"))
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return f"{field} is not a known field", field
    if first["type"] == "missing":
        return f"{field} is missing", field
    return f"{field}: {message}" if field else message, field
