"""Converts parsed JSON to a typed report, or to the violations of the format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

# What can be said of a report before it is one.
SHAPES = ("MALFORMED", "STRAY_FIELD", "PROVENANCE_MISSING", "NO_ROWS", "BAD_ROW")

_PROVENANCE = ("identity", "config", "created_at", "models")
_TOLD = 100
_TOGETHER = 5
# No object of a report needs more names. Each that is unknown is a fault, which takes far more memory than the name.
_NAMES = 10_000


def read(model: type[BaseModel], report: Mapping[str, Any]) -> tuple[BaseModel | None, list[tuple[str, str]]]:
    """Return the report as its model, or None and what is wrong, as pairs of code and message."""
    if any(len(one) > _NAMES for one in _objects(report)):
        return None, [("MALFORMED", f"an object holds more than {_NAMES} names")]
    try:
        return model.model_validate(report), []
    except ValidationError as error:
        wrong = _errors(error)
    told: dict[tuple[str, str], list[str]] = {}
    for one in chain([one for one in wrong if not _is_row(one)], _bad_rows(model, report, wrong)):
        where = [str(part) for part in one["loc"]]
        code, group = _about(where, str(one["type"]))
        messages = told.setdefault((code, group), [])
        if len(messages) < _TOGETHER:
            messages.append(f"{'.'.join(where)}: {_said(one)}")
        if len(told) > _TOLD:
            break
    return None, [(code, "; ".join(messages)) for (code, _), messages in told.items()]


def _errors(error: ValidationError, *place: str | int) -> list[dict[str, Any]]:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [{**one, "loc": (*place, *one["loc"])} for one in found]


def _is_row(one: Mapping[str, Any]) -> bool:
    return one["loc"][:1] == ("rows",) and len(one["loc"]) > 1


def _bad_rows(
    model: type[BaseModel], report: Mapping[str, Any], wrong: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield what is wrong with each row: validating the whole report stops at the first bad row."""
    if any(map(_is_row, wrong)):
        adapter: TypeAdapter[Any] = TypeAdapter(get_args(model.model_fields["rows"].annotation)[0])
        for i, row in enumerate(report["rows"]):
            try:
                adapter.validate_python(row)
            except ValidationError as error:
                yield from _errors(error, "rows", i)


def _objects(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield all objects in parsed JSON."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += [item for item in one if isinstance(item, dict | list)]


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
