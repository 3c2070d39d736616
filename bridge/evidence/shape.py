"""Converts parsed JSON to a typed report, or to the violations of the format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

# What can be said of a report before it is one.
SHAPES = ("MALFORMED", "STRAY_FIELD", "PROVENANCE_MISSING", "NO_ROWS", "BAD_ROW")

_PROVENANCE = ("identity", "config", "created_at", "models")
_TOLD = 100


def read(model: type[BaseModel], report: Mapping[str, Any]) -> tuple[BaseModel | None, list[tuple[str, str]]]:
    """Return the report as its model, or None and what is wrong, as pairs of code and message."""
    try:
        return model.model_validate(report), []
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)
    told: dict[tuple[str, str], list[str]] = {}
    for one in wrong:
        where = [str(part) for part in one["loc"]]
        code, group = _about(where, str(one["type"]))
        told.setdefault((code, group), []).append(f"{'.'.join(where)}: {_said(one)}")
        if len(told) > _TOLD:
            break
    return None, [(code, "; ".join(messages[:5])) for (code, _), messages in told.items()]


def _about(where: list[str], kind: str) -> tuple[str, str]:
    """Return the code for a fault at a place, and the part of the report that is told of once."""
    top = where[0] if where else ""
    if len(where) == 1 and kind == "extra_forbidden":
        return "STRAY_FIELD", ""
    if top in _PROVENANCE:
        return "PROVENANCE_MISSING", ""
    if top == "rows":
        return ("NO_ROWS", "") if len(where) == 1 else ("BAD_ROW", where[1])
    return "MALFORMED", top


def _said(one: Any) -> str:
    return "is missing" if one["type"] == "missing" else str(one["msg"])
