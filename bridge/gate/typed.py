"""Converts parsed JSON to a typed report, or to the violations of the format."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from bridge.common.validation import place_of, predicate
from bridge.reports.models import Report

_PROVENANCE = ("identity", "config", "created_at", "models")
_MOST_GROUPS = 100
_MOST_TOGETHER = 5


def read_typed(model: type[Report], report: Mapping[str, Any]) -> tuple[Report | None, list[tuple[str, str]]]:
    """Return the report as its typed model (None if it is invalid), and its faults as pairs of code and message."""
    context: dict[str, Any] = {"layers": {}}
    try:
        return model.model_validate(report, context=context), []
    except ValidationError as error:
        faults = _errors(error)
    messages: dict[tuple[str, str], list[str]] = {}
    outside_rows = [fault for fault in faults if not _is_in_row(fault)]
    for fault in chain(outside_rows, _row_faults(model, report, faults, context)):
        where = place_of(fault, model, report)
        group = messages.setdefault(_code_and_part(where, fault["type"]), [])
        if len(group) < _MOST_TOGETHER:
            group.append(f"{'.'.join(where)}: {predicate(fault)}")
        if len(messages) > _MOST_GROUPS:
            break
    return None, [(code, "; ".join(group)) for (code, _), group in messages.items()]


def _errors(error: ValidationError, *place: str | int) -> list[dict[str, Any]]:
    faults = error.errors(include_url=False)
    return [{**fault, "loc": (*place, *fault["loc"])} for fault in faults]


def _is_in_row(fault: Mapping[str, Any]) -> bool:
    return fault["loc"][:1] == ("rows",) and len(fault["loc"]) > 1


def _row_faults(
    model: type[Report], report: Mapping[str, Any], faults: list[dict[str, Any]], context: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield what is wrong with each row: validating the whole report stops at the first bad row."""
    if any(map(_is_in_row, faults)):
        adapter: TypeAdapter[Any] = TypeAdapter(get_args(model.model_fields["rows"].annotation)[0])
        for i, row in enumerate(report["rows"]):
            try:
                adapter.validate_python(row, context=context)
            except ValidationError as error:
                yield from _errors(error, "rows", i)


def _code_and_part(where: list[str], type_: str) -> tuple[str, str]:
    """Return the code for a fault at a location, and the part of the report that is reported once."""
    top = where[0] if where else ""
    if top in _PROVENANCE:
        return "PROVENANCE_MISSING", ""
    if top == "rows" and len(where) > 1:
        return "BAD_ROW", where[1]
    if top == "rows":
        return ("TOO_LARGE" if type_ == "too_long" else "NO_ROWS"), ""
    return "MALFORMED", top
