"""Strict JSON for untrusted input: unambiguous, and limited in every dimension."""

import json
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from bridge.common import limits
from bridge.common.errors import ManifestError

MAX_BYTES = 64 * 1024
MAX_DEPTH = 8
MAX_DIGITS = 18
# A text is counted in pieces of this many bytes, because splitting it into strings takes many times the memory.
_PIECE = 1 << 18
_BACKSLASHES = re.compile(rb"\\*")
# Shared objects have at most this many names, and lists in them this many items: larger ones are seldom equal.
_SHARED_NAMES, _SHARED_ITEMS = 8, 64


class Bounds(NamedTuple):
    """Limits of a JSON text: containers, values and names, and distinct objects if equal ones are shared."""

    nests: int
    values: int
    names: int
    objects: int | None = None


MANIFEST = Bounds(limits.JSON_NESTS, limits.JSON_VALUES, limits.JSON_NAMES)
REPORT = Bounds(limits.REPORT_NESTS, limits.REPORT_VALUES, limits.REPORT_NAMES, limits.REPORT_OBJECTS)


def loads(
    data: str | bytes, *, what: str = "the manifest", max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH,
    bounds: Bounds = MANIFEST,
) -> Any:  # fmt: skip
    """Parse JSON, and refuse everything that RFC 8259 leaves open or that could exhaust the reader.

    Refused: more than ``max_bytes``, text that is not UTF-8, duplicate keys, NaN and Infinity (also spelled ``1e999``),
    integers of more than 18 digits, lone surrogates, nesting deeper than ``max_depth``, and more values than ``bounds``
    allow, whose objects take far more memory than their text.

    Raises:
        ManifestError: the text is not such JSON.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if len(raw) > max_bytes:
        message = f"{what} is larger than {max_bytes} bytes: it has {len(raw)}"
        raise ManifestError(message, code="too_large")
    count = _count(raw)
    if _is_too_much(count, bounds):
        count = count_outside_strings(raw)
    if _is_too_much(count, bounds):
        most = f"{bounds.values} values, {bounds.nests} of them lists and objects, are the most"
        most += f", and {bounds.names} names"
        raise ManifestError(f"{what} holds too many values: {most}", code="too_large")
    decoder = _DECODER if bounds.objects is None else _decoder(_sharing(bounds.objects))
    try:
        value = decoder.decode(raw.decode("utf-8"))
    except ManifestError as error:
        code = error.code if error.code == "too_large" else "bad_json"
        raise ManifestError(f"{what} {error.message}", code=code) from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{what} is not UTF-8 text", code="bad_json") from error
    except json.JSONDecodeError as error:
        raise ManifestError(f"{what} {_not_json(error)}", code="bad_json") from error
    except RecursionError as error:
        raise ManifestError(f"{what} is nested too deeply", code="bad_json") from error
    if count.nests > max_depth or b"\\u" in raw:
        _check(value, what, max_depth, set())
    return value


def _not_json(error: json.JSONDecodeError) -> str:
    """Return why a text is not JSON: where it stops being JSON, and whether the text ends there."""
    if not error.doc.strip():
        return "is empty"
    if error.doc.startswith("\ufeff"):
        return "begins with a byte order mark, as other programs write it, which is not JSON"
    if re.fullmatch(r"\s*e[wy][A-Za-z0-9+/=\s]*", error.doc):
        return "is base64 text: store the text that it encodes"
    if re.match(r"""\s*[{\[]\s*\\+["n]""", error.doc):
        return 'is escaped JSON: its quotes are written as \\": store it without the backslashes'
    where = f"line {error.lineno}, column {error.colno}"
    was_cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")
    if was_cut:
        return f"is not JSON: it was cut off after {len(error.doc.encode())} bytes ({error.msg} at {where})"
    return f"is not JSON: {error.msg} at {where}"


def _is_too_much(count: Bounds, bounds: Bounds) -> bool:
    return any(number > bound for number, bound in zip(count[:3], bounds[:3], strict=True))


def _count(raw: bytes) -> Bounds:
    nests = raw.count(b"[") + raw.count(b"{")
    return Bounds(nests, nests + raw.count(b",") + 1, raw.count(b":"))


def count_outside_strings(raw: bytes, piece: int = _PIECE) -> Bounds:
    """Count like ``_count``, but without the marks in strings, in time proportional to the length."""
    nests, values, names, inside, start = 0, 1, 0, False, 0
    while start < len(raw):
        end = start + piece
        if raw[end - 1 : end] == b"\\":
            # Do not cut an escape in two.
            run = _BACKSLASHES.match(raw, end)
            end = (run.end() if run else end) + 1
        parts = raw[start:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        counted = _count(b"".join(parts[inside::2]))
        nests, values, names = nests + counted.nests, values + counted.values - 1, names + counted.names
        inside ^= len(parts) % 2 == 0
        start = end
    return Bounds(nests, values, names)


def dumps(value: object) -> str:
    """Return JSON for people and for digests: with sorted keys, two spaces, and nothing that ``loads`` refuses."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        keys: set[str] = set()
        twice = next(name for name, _ in pairs if name in keys or keys.add(name))  # type: ignore[func-returns-value]
        raise ManifestError(f"names {twice!r} twice")
    return members


def _no_constant(text: str) -> NoReturn:
    raise ManifestError(f"holds {text}, which is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ManifestError(f"holds {text}, which is too large for a number")
    return number


def _short_int(text: str) -> int:
    if len(text.lstrip("-")) > MAX_DIGITS:
        raise ManifestError(f"holds an integer of {len(text)} digits; {MAX_DIGITS} are the most")
    return int(text)


def _sharing(most: int) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """Return a hook that makes equal objects one object, and refuses more than ``most`` different ones."""
    known: dict[object, dict[str, Any]] = {}
    number = 0

    def hook(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal number
        if len(pairs) > limits.REPORT_OBJECT_NAMES:
            raise ManifestError(f"has an object with {len(pairs)} names", code="too_large")
        key = _identity_of(pairs)
        if key is not None and key in known:
            return known[key]
        number += 1
        if number > most:
            raise ManifestError(f"holds more than {most} different objects", code="too_large")
        value = _no_duplicates(pairs)
        if key is not None:
            known[key] = value
        return value

    return hook


def _identity_of(pairs: list[tuple[str, Any]]) -> object:
    """Return a key by which equal objects are recognized; None if the object is too large for that."""
    if len(pairs) > _SHARED_NAMES or any(isinstance(v, list) and len(v) > _SHARED_ITEMS for _, v in pairs):
        return None
    return tuple((name, _identity(value)) for name, value in pairs)


def _identity(value: Any) -> object:
    """Return a key by which equal values are recognized: the value, an object's address, or its items."""
    if isinstance(value, dict):
        return dict, id(value)
    if isinstance(value, list):
        return (list, *map(_identity, value))
    return type(value), repr(value) if value == 0 else value  # 0.0 == -0.0, but must not be shared


def _decoder(pairs_hook: Callable[[list[tuple[str, Any]]], dict[str, Any]]) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=pairs_hook, parse_constant=_no_constant, parse_float=_finite, parse_int=_short_int
    )


# One decoder for most texts: creating a decoder takes as long as decoding a small file.
_DECODER = _decoder(_no_duplicates)


def _check(value: object, noun: str, depth: int, ancestors: set[int]) -> None:
    """Walk the parsed value once: depth, and strings that could not be written again. Shared objects are seen once."""
    if depth < 0 or (depth == 0 and isinstance(value, list) and value):
        raise ManifestError(f"{noun} is nested too deeply", code="bad_json")
    if isinstance(value, str):
        if not value.isprintable() and any("\ud800" <= c <= "\udfff" for c in value):
            raise ManifestError(f"{noun} holds half of a surrogate pair", code="bad_json")
    elif isinstance(value, dict):
        if id(value) in ancestors:
            return  # a shared object is checked once
        ancestors.add(id(value))
        for key, item in value.items():
            _check(key, noun, depth - 1, ancestors)
            _check(item, noun, depth - 1, ancestors)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, str | dict | list):
                _check(item, noun, depth - 1, ancestors)
