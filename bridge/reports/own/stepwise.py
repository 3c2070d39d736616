"""Validates a document against a schema in small steps, between which the caller can end the work."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from bridge.reports.own.schema import MAX_MATCHED

_SHOWN = 200
# The keyword of a text that is too long for a pattern.
TOO_LONG = "too long for a pattern"


class SchemaTooDeepError(Exception):
    """A schema refers to itself more often than this interpreter can follow."""


class Violation(NamedTuple):
    """One place that breaks a schema. Of the document, it contains only the names in the path to the place."""

    place: tuple[str | int, ...]
    keyword: str
    rule: str


def violations(schema: Mapping[str, Any], document: object, check: Callable[[], None]) -> Iterator[Violation]:
    """Yield where a document breaks a schema. ``check`` is called before each keyword; its exception ends the work."""
    from referencing import Registry  # noqa: PLC0415 - slow to import, and seldom needed

    # An empty registry retrieves nothing from elsewhere.
    validator = _validator_class(check)(schema, registry=Registry())
    try:
        for error in validator.iter_errors(document):
            rule = json.dumps(error.validator_value, sort_keys=True)
            short = rule if len(rule) <= _SHOWN else f"{rule[:_SHOWN]}..."
            keyword = TOO_LONG if error.message == TOO_LONG else str(error.validator)
            yield Violation(tuple(error.absolute_path), keyword, short)
    except RecursionError as error:
        raise SchemaTooDeepError from error


def _validator_class(check: Callable[[], None]) -> Any:
    from jsonschema import Draft202012Validator  # noqa: PLC0415
    from jsonschema.validators import extend  # noqa: PLC0415

    def checked(function: Any) -> Any:
        def keyword(*args: Any) -> Any:
            check()
            return function(*args)

        return keyword

    counted = {
        "anyOf": _counted("anyOf"),
        "oneOf": _counted("oneOf"),
        "pattern": _pattern,
        "uniqueItems": _unique,
    }
    own = {**Draft202012Validator.VALIDATORS, **counted}
    return extend(Draft202012Validator, {name: checked(function) for name, function in own.items()})


def _counted(name: str) -> Any:
    """Return a keyword that counts the schemas that hold. The library's own keeps every error in each of them."""
    from jsonschema import ValidationError  # noqa: PLC0415

    def keyword(validator: Any, schemas: Any, document: object, _schema: object) -> Iterator[Any]:
        held = (each for each in schemas if validator.evolve(schema=each).is_valid(document))
        count = len([*islice(held, 2 if name == "oneOf" else 1)])
        if count != 1:
            yield ValidationError(name)

    return keyword


def _pattern(_validator: Any, pattern: str, text: object, _schema: object) -> Iterator[Any]:
    from jsonschema import ValidationError  # noqa: PLC0415

    if not isinstance(text, str):
        return
    if len(text) > MAX_MATCHED:
        yield ValidationError(TOO_LONG)
    elif not _compiled(pattern).search(text):
        yield ValidationError("pattern")


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _unique(_validator: Any, wanted: bool, items: object, _schema: object) -> Iterator[Any]:
    """Compare the items' texts: comparing each with each takes time that grows with the square of their number."""
    from jsonschema import ValidationError  # noqa: PLC0415

    if wanted and isinstance(items, list):
        texts = {json.dumps(_plain(item), sort_keys=True) for item in items}
        if len(texts) != len(items):
            yield ValidationError("uniqueItems")


def _plain(value: object) -> object:
    """Return a value in which equal numbers are written alike, as 1 and 1.0 are."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value
