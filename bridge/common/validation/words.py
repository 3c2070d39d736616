"""Says in this project's words what is wrong with a value, for every type of error that pydantic knows."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_MAPPING, _TIME = "a mapping of names to values", "a date or a time"
_NUMBER, _WHOLE = "a number", "a whole number"

# What kind of value was expected, by the type of pydantic's error.
KINDS = {
    "string_type": "text", "string_unicode": "text in UTF-8", "bytes_type": "text",
    "int_type": _WHOLE, "int_parsing": _WHOLE, "int_parsing_size": _WHOLE, "int_from_float": _WHOLE,
    "float_type": _NUMBER, "float_parsing": _NUMBER, "decimal_type": _NUMBER, "decimal_parsing": _NUMBER,
    "fraction_type": _NUMBER, "fraction_parsing": _NUMBER, "complex_type": _NUMBER, "complex_str_parsing": _NUMBER,
    "bool_type": "true or false", "bool_parsing": "true or false", "none_required": "null",
    "list_type": "a list", "tuple_type": "a list", "set_type": "a list", "frozen_set_type": "a list",
    "deque_type": "a list", "iterable_type": "a list", "named_tuple_type": "a list",
    "dict_type": _MAPPING, "frozen_dict_type": _MAPPING, "ordered_dict_type": _MAPPING, "counter_type": _MAPPING,
    "mapping_type": _MAPPING, "model_type": _MAPPING, "model_attributes_type": _MAPPING, "dataclass_type": _MAPPING,
    "dataclass_exact_type": _MAPPING, "arguments_type": _MAPPING,
    "path_type": "a path",
    "date_type": _TIME, "date_parsing": _TIME, "time_type": _TIME, "time_parsing": _TIME, "datetime_type": _TIME,
    "datetime_parsing": _TIME, "time_delta_type": "a time span", "time_delta_parsing": "a time span",
    "url_type": "a URL", "url_parsing": "a URL", "uuid_type": "a UUID", "uuid_parsing": "a UUID",
}  # fmt: skip

# What is wrong with a value, by the type of pydantic's error. Braces are filled in from the error's context.
_OTHERS = {
    "missing": "is missing",
    "missing_argument": "is missing",
    "union_tag_not_found": "is missing",
    "extra_forbidden": "is not a known field",
    "unexpected_keyword_argument": "is not a known field",
    "invalid_key": "has a name that is not text",
    "json_invalid": "must be JSON",
    "json_type": "must be JSON",
    "recursion_loop": "must not contain itself",
    "recursion_depth_exceeded": "is nested too deeply",
    "frozen_field": "cannot be changed",
    "frozen_instance": "cannot be changed",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "finite_number": "must be a finite number",
    "too_short": "must have at least {min_length} {entries}",
    "too_long": "must have at most {max_length} {entries}",
    "string_too_short": "must have at least {min_length} {characters}",
    "string_too_long": "must have at most {max_length} {characters}",
    "bytes_too_short": "must have at least {min_length} {characters}",
    "bytes_too_long": "must have at most {max_length} {characters}",
    "bytes_invalid_encoding": "must be text in UTF-8",
    "string_not_ascii": "must be ASCII text",
    "string_pattern_mismatch": "must match the pattern {pattern}",
}
UNKNOWN = "is not a valid value"
# These messages are this project's own. The prefixes are pydantic's.
_OWN = re.compile(r"^(?:Value error|Assertion failed), ")
_QUOTED = re.compile(r"'([^']*)'")
_SHOWN = 60


def near(word: object, known: Iterable[str]) -> str:
    """Return the most similar known word as a remark in parentheses; nothing if none is similar."""
    lower = {name.lower(): name for name in known}
    similar = difflib.get_close_matches(str(word)[:200].lower(), lower, n=1)
    return f" (did you mean {lower[similar[0]]}?)" if similar else ""


def kind_of(value: object) -> str:
    """Return what a value is, in the words of JSON and YAML."""
    kinds: list[tuple[type | tuple[type, ...], str]] = [
        (bool, "true or false"), (int, "a whole number"), (float, "a decimal number"), ((str, bytes), "text"),
        ((list, tuple), "a list"), (dict, "a mapping"),
    ]  # fmt: skip
    return next(
        (words for kind, words in kinds if isinstance(value, kind)), "null" if value is None else "that"
    )


def is_own(fault: Mapping[str, Any]) -> bool:
    """Return whether a fault's message is this project's own, written for a colon before it."""
    return bool(_OWN.match(str(fault["msg"])))


def predicate(fault: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, without its name: ``must be text, not a list``. Never pydantic's message."""
    type_, context = fault["type"], fault.get("ctx") or {}
    if is_own(fault):
        return _OWN.sub("", str(fault["msg"]))
    if wanted := KINDS.get(type_):
        return f"must be {wanted}{_but(fault, wanted)}"
    if expected := context.get("expected") or context.get("expected_tags"):
        return _choice(_QUOTED.findall(expected) or [expected], context.get("tag", fault.get("input")))
    words = {**context, "entries": "entries", "characters": "characters"}
    if context.get("min_length" if type_.endswith("short") else "max_length") == 1:
        words |= {"entries": "entry", "characters": "character"}
    try:
        return _OTHERS.get(type_, UNKNOWN).format(**words)
    except (KeyError, IndexError):
        return UNKNOWN


def _but(fault: Mapping[str, Any], wanted: str) -> str:
    """Return the type of a wrong value, for the message; empty if the type is right and only the value is wrong."""
    actual = kind_of(fault["input"]) if "input" in fault else "that"
    fits = wanted.startswith(actual) or (wanted == _NUMBER and actual.endswith(" number"))
    return "" if fits or actual == "that" else f", not {actual}"


def _choice(known: Sequence[str], word: object) -> str:
    """Return the allowed words, and the one that was probably meant instead of ``word``."""
    allowed = known[0] if len(known) == 1 else f"one of {', '.join(known)}"
    if type(word) is int and abs(word) < 1 << 63:
        return f"must be {allowed}, not {word}"
    if not isinstance(word, str):
        return f"must be {allowed}, not {kind_of(word)}"
    return f"must be {allowed}" + (f", not {word!r}{near(word, known)}" if len(word) <= _SHOWN else "")
