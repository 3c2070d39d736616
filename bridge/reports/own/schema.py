"""The JSON Schemas that a preset can declare: a bounded part of draft 2020-12 that reads nothing from elsewhere.

A schema comes from a preset's owner or, with a fetched answer, from a stranger. So its size and depth are limited, it
may refer only to itself, and its patterns cannot take more than linear work for each of a text's characters. The gate
limits the time (``bridge.gate.own``).
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bridge.common.validation import near
from bridge.reports.own.pointer import MISSING, check_pointer, value_at, written

DRAFT = "https://json-schema.org/draft/2020-12/schema"
MAX_BYTES, MAX_DEPTH, MAX_VALUES = 24 * 1024, 24, 4_000
# Larger whole numbers are not exact in most languages.
_EXACT = 2**53
# The longest pattern, the longest text that is matched, and how many ways a pattern may have to match at one place.
MAX_PATTERN, MAX_MATCHED, _MOST_WAYS = 200, 256, 1 << 17

_NOTES = frozenset(("$schema", "$comment", "title", "description", "default", "examples", "deprecated"))
_SUBSCHEMA = frozenset((
    "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
))  # fmt: skip
_SUBSCHEMAS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED = frozenset(("$defs", "definitions", "properties"))
_VALUES = frozenset((
    "$ref", "const", "dependentRequired", "enum", "exclusiveMaximum", "exclusiveMinimum", "maxContains", "maxItems",
    "maxLength", "maxProperties", "maximum", "minContains", "minItems", "minLength", "minProperties", "minimum",
    "multipleOf", "pattern", "required", "type", "uniqueItems",
))  # fmt: skip
KEYWORDS = _NOTES | _SUBSCHEMA | _SUBSCHEMAS | _NAMED | _VALUES

_REPEATED = re.compile(r"\{(\d{1,4})(?:(,)(\d{0,4}))?\}")
# An escaped character, or a class of characters.
_ONE_CHARACTER = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")


def check_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema; ValueError with the path if it cannot be used."""
    _check_size(schema)
    for path, part in _parts(schema, []):
        _check_part(schema, path, part)
    _check_values(schema)
    return schema


def _check_size(schema: object) -> None:
    """Refuse values that are not JSON, too large or too deep. Later code recurses no deeper than this allows."""
    rest: list[tuple[object, int]] = [(schema, 1)]
    values = 0
    while rest:
        value, depth = rest.pop()
        values += 1
        if depth > MAX_DEPTH or values > MAX_VALUES:
            raise ValueError(f"is too large: it may have {MAX_VALUES} values in {MAX_DEPTH} levels")
        if isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                raise ValueError("must have texts as names; put them in quotes")
            rest += [(item, depth + 1) for item in value.values()]
        elif isinstance(value, list):
            rest += [(item, depth + 1) for item in value]
        elif isinstance(value, int) and abs(value) > _EXACT:
            raise ValueError("must hold no whole number above 2^53")
        elif not (value is None or isinstance(value, bool | int | float | str)):
            raise ValueError(f"must be JSON, and {type(value).__name__} is not: put it in quotes")
    try:
        size = len(json.dumps(schema, allow_nan=False, ensure_ascii=False).encode())
    except ValueError as error:
        raise ValueError("must be JSON: NaN, infinity and halves of characters are not") from error
    if size > MAX_BYTES:
        raise ValueError(f"is larger than {MAX_BYTES >> 10} KiB")


def _parts(schema: object, path: list[str | int]) -> Iterator[tuple[list[str | int], Mapping[str, Any]]]:
    """Yield each schema within a schema, with its path."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise ValueError(f"{written(path)}: must be a schema: a mapping, true or false")
    yield path, schema
    for key, value in schema.items():
        here = [*path, key]
        if key in _SUBSCHEMA:
            yield from _parts(value, here)
        elif key in _SUBSCHEMAS and isinstance(value, list):
            for i, each in enumerate(value):
                yield from _parts(each, [*here, i])
        elif key in _NAMED and isinstance(value, dict):
            for name, each in value.items():
                yield from _parts(each, [*here, name])


def _check_part(root: Mapping[str, Any], path: list[str | int], part: Mapping[str, Any]) -> None:
    for key in part:
        if key not in KEYWORDS:
            known = near(key, KEYWORDS)
            raise ValueError(f"{written([*path, key])}: is not a keyword that the gate checks{known}")
    where = written(path)
    if part.get("$schema", DRAFT) != DRAFT:
        raise ValueError(f"{where}: $schema must be {DRAFT}")
    if "$ref" in part:
        _check_ref(root, where, part["$ref"])
    if isinstance(part.get("pattern"), str) and (fault := pattern_fault(part["pattern"])):
        raise ValueError(f"{where}: the pattern {part['pattern'][:40]!r} {fault}")


def _check_ref(root: Mapping[str, Any], where: str, ref: object) -> None:
    if not isinstance(ref, str) or not ref.startswith("#"):
        raise ValueError(f"{where}: $ref must begin with #: nothing is read from elsewhere")
    try:
        inner = value_at(root, check_pointer(ref[1:]))
    except ValueError as error:
        raise ValueError(f"{where}: $ref {error}") from error
    names = [*root.get("$defs", {})] if isinstance(root.get("$defs"), dict) else []
    if inner is MISSING or not isinstance(inner, dict | bool):
        remark = near(ref, [f"#/$defs/{name}" for name in names])
        raise ValueError(f"{where}: $ref {ref[:80]!r} names nothing in the schema{remark}")


def _check_values(schema: Mapping[str, Any]) -> None:
    """Refuse keywords whose values have another type than the draft says."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow to import, and seldom needed
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = written(list(error.absolute_path))
        rule = error.schema.get("type", error.schema.get("enum")) if isinstance(error.schema, dict) else None
        must = (
            f"must be of type {rule}"
            if rule
            else f"has a value that breaks the draft's rule {error.validator}"
        )
        raise ValueError(f"{where}: {must}") from error


def pattern_fault(pattern: str) -> str:
    """Return why a pattern cannot be used; empty if it can. Matching any text of ``MAX_MATCHED`` must end in time."""
    if len(pattern) > MAX_PATTERN:
        return f"is longer than {MAX_PATTERN} characters"
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is not a regular expression: {error}"
    if re.search(r"\(\?(?!:)|\\[1-9]", pattern):
        return "may use plain groups (?:...) alone: no look-around and no back-references"
    bare = _ONE_CHARACTER.sub("x", pattern).replace("(?:", "(")
    if re.search(r"\)[*+{]", bare):
        return "repeats a group, which can take very long; repeat single characters or classes"
    ways = 2 ** (bare.count("|") + bare.count("?"))
    ways *= MAX_MATCHED ** (bare.count("*") + bare.count("+"))
    for low, comma, high in _REPEATED.findall(bare):
        ways *= (int(high or MAX_MATCHED) - int(low) + 1) if comma else 1
    return "can match in too many ways; use fewer *, +, ? and |" if ways > _MOST_WAYS else ""
