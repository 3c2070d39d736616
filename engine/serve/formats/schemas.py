"""Walks through JSON schemas from clients: the only module that follows their references and parts.

A schema can refer to itself, and a small one can have more paths than could ever be followed. So a walk visits each
part once, and ends after a number of steps.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self
from urllib.parse import unquote

from engine.serve.errors import ApiError

MOST_PARTS = 200_000  # of a schema that is checked, in a thread
MOST_TYPE_STEPS = 2_000  # for the types of the arguments that a text calls with, in the event loop
DEEPEST = 64  # the most nested references and alternatives that are followed
TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
NAMES = {bool: "boolean", int: "integer", str: "string", dict: "object", list: "array"}
# Keywords that limit no value, and those whose values are schemas by name.
NOTES = frozenset({"default", "example", "examples", "title", "description", "$comment"})
MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
VALUES = frozenset({"const", "enum"})
DENSE = 1 << 53  # up to this size, every integer is a double
INT64 = (1 << 63) - 1  # the largest integer in llguidance, which rounds to doubles but ends there


class WrittenFloat(float):
    """A number as a client wrote it: its ``text`` may have more digits than a double."""

    text: str

    def __new__(cls, text: str) -> Self:
        """Read a number."""
        number = super().__new__(cls, text)
        number.text = text
        return number


@dataclass
class Budget:
    """The steps that are left for a walk."""

    remaining: int

    def spend(self, steps: int = 1) -> bool:
        """Take some steps. Returns whether there were as many."""
        self.remaining -= steps
        return self.remaining >= 0


def type_of(value: Any) -> str:
    """Return the JSON type of a value; the empty text for anything else."""
    if isinstance(value, float):
        return "number"
    return "null" if value is None else NAMES.get(type(value), "")


def properties_of(schema: Any) -> dict[str, Any]:
    """Return the properties of a schema; empty if the schema has none."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties if isinstance(properties, dict) else {}


class ArgumentTypes:
    """The JSON types that a function's ``parameters`` allow for its arguments."""

    def __init__(self, parameters: Any, budget: Budget) -> None:
        self._root, self._budget = parameters, budget
        self._known: dict[int, frozenset[str]] = {}  # by the part's identity

    def of(self, name: str) -> frozenset[str]:
        """Return the types of an argument; all types if the schema does not say, or once the budget is used up."""
        types = self._types(properties_of(self._root).get(name), DEEPEST)
        return types if self._budget.remaining >= 0 else TYPES

    def _types(self, schema: Any, depth: int) -> frozenset[str]:
        if not self._budget.spend() or not isinstance(schema, dict) or not depth:
            return TYPES
        if id(schema) in self._known:
            return self._known[id(schema)]
        self._known[id(schema)] = types = TYPES  # a part that refers to itself says no more by that
        if isinstance(ref := schema.get("$ref"), str):
            types &= self._types(self._target(ref), depth - 1)
        types &= _named(schema.get("type"))
        for values in (schema.get("enum"), [schema["const"]] if "const" in schema else None):
            if isinstance(values, list) and values and self._budget.spend(len(values)):
                types &= frozenset(map(type_of, values))
        for word in ("anyOf", "oneOf"):
            if isinstance(choices := schema.get(word), list) and choices:
                types &= frozenset().union(*self._each(choices, depth - 1))
        if isinstance(parts := schema.get("allOf"), list):
            types = types.intersection(*self._each(parts, depth - 1))
        self._known[id(schema)] = types or TYPES
        return types or TYPES

    def _each(self, schemas: list[Any], depth: int) -> Iterator[frozenset[str]]:
        for each in schemas:
            yield self._types(each, depth)
            if self._budget.remaining < 0:
                yield TYPES
                return

    def _target(self, ref: str) -> Any:
        """Return the target of a reference; None if there is no such part."""
        node = self._root
        for part in ref.removeprefix("#").split("/")[1:]:
            if not self._budget.spend():
                return None
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(node, list):
                node = (
                    dict(zip(map(str, range(len(node))), node, strict=True))
                    if len(name) < len("1000")
                    else None
                )
            node = node.get(name) if isinstance(node, dict) else None
        return node


def _named(kind: Any) -> frozenset[str]:
    """Return the types that a ``type`` allows. Every integer is a number too."""
    kinds = [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else []
    named = TYPES.intersection(each for each in kinds[: len(TYPES)] if isinstance(each, str))
    return (named | {"integer"} if "number" in named else named) or TYPES


def check(schema: Any, param: str) -> None:
    """Raise ApiError 400 for a schema with too many parts, or with a number that a grammar would round."""
    budget = Budget(MOST_PARTS)
    waiting: list[tuple[Any, str, dict[str, Any]]] = [
        (schema, "", {})
    ]  # a part, its keyword, and whose that is
    while waiting:
        node, keyword, owner = waiting.pop()
        if not budget.spend():
            message = f"The JSON schema has more than {MOST_PARTS} parts."
            raise ApiError(400, message, param=param, code="invalid_schema")
        if isinstance(node, list | dict):
            inner = node.values() if isinstance(node, dict) else node
            if keyword in VALUES or keyword in MAPS or isinstance(node, list):
                below = keyword if keyword in VALUES else ""
                waiting += ((each, below, owner) for each in inner)
            else:
                waiting += ((each, name, node) for name, each in node.items() if name not in NOTES)
        elif keyword in VALUES | BOUNDS and not _is_exact(node, keyword, owner):
            shown = node.text if isinstance(node, WrittenFloat) else str(node)
            message = f"The JSON schema keyword {keyword} has a number that cannot be enforced exactly: {shown[:40]}."
            raise ApiError(400, message, param=param, code="invalid_schema")


def _is_exact(value: Any, keyword: str, owner: dict[str, Any]) -> bool:
    """Return whether llguidance, which computes with doubles, enforces a keyword's number exactly."""
    if isinstance(value, float):
        return _is_held(value)
    if not isinstance(value, int) or abs(value) < DENSE:
        return True
    inclusive = keyword in ("minimum", "maximum") and owner.get("type") == "integer"
    if keyword not in VALUES and not inclusive:
        return False
    return (value == INT64 and keyword != "minimum") or (abs(value) < INT64 and int(float(value)) == value)


def _is_held(value: float) -> bool:
    """Return whether a double is the number that was written."""
    as_double = Decimal(value if abs(value) >= DENSE else repr(float(value)))
    try:
        stated = Decimal(value.text) if isinstance(value, WrittenFloat) else as_double
    except ArithmeticError:  # its exponent is too long even for decimal numbers
        return False
    return math.isfinite(value) and stated == as_double
