"""Strict JSON for untrusted input: unambiguous, and limited in every dimension."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NamedTuple, NoReturn

from bridge import limits
from bridge.errors import ManifestError

MAX_BYTES = 64 * 1024
MAX_DEPTH = 8
MAX_DIGITS = 18
# A text is counted in pieces of so many bytes, because a split into its strings takes many times the memory.
_PIECE = 1 << 18
_BACKSLASHES = re.compile(rb"\\*")


def loads(
    data: str | bytes, *, what: str = "the manifest", max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH
) -> Any:
    """Parse JSON and refuse what RFC 8259 leaves open or what could be used to exhaust the reader.

    Refused: more than ``max_bytes``, text that is not UTF-8, duplicate keys, NaN and Infinity (also spelled ``1e999``),
    integers of more than 18 digits, lone surrogates, nesting deeper than ``max_depth``, and more values than ``limits``
    allows, whose objects take far more memory than their text.

    Raises:
        ManifestError: the text is not such JSON.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if len(raw) > max_bytes:
        raise ManifestError(f"{what} is larger than {max_bytes} bytes", code="too_large")
    count = _count(raw)
    if _is_too_much(count):
        count = _count_outside(raw)
    if _is_too_much(count):
        most = f"{limits.JSON_VALUES} values, {limits.JSON_NESTS} of them lists and objects, are the most"
        most += f", and {limits.JSON_NAMES} names"
        raise ManifestError(f"{what} holds too many values: {most}", code="too_large")
    try:
        value = _DECODER.decode(raw.decode("utf-8"))
    except ManifestError as error:
        raise ManifestError(f"{what} {error.message}", code="bad_json") from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{what} is not UTF-8 text", code="bad_json") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ManifestError(f"{what} is not JSON: {error.msg} at {where}", code="bad_json") from error
    except RecursionError as error:
        raise ManifestError(f"{what} is nested too deeply", code="bad_json") from error
    if count.nests > max_depth or b"\\u" in raw:
        _check(value, what, max_depth)
    return value


class _Count(NamedTuple):
    """How many lists and objects, values, and names a text holds at most."""

    nests: int
    values: int
    names: int


def _is_too_much(count: _Count) -> bool:
    most = (limits.JSON_NESTS, limits.JSON_VALUES, limits.JSON_NAMES)
    return any(found > bound for found, bound in zip(count, most, strict=True))


def _count(raw: bytes) -> _Count:
    """Count the marks of a text; those in strings count too."""
    nests = raw.count(b"[") + raw.count(b"{")
    return _Count(nests, nests + raw.count(b",") + 1, raw.count(b":"))


def _count_outside(raw: bytes) -> _Count:
    """Return what ``_count`` does, without the marks in strings, in a time that grows with the length alone."""
    nests, values, names, inside, start = 0, 1, 0, False, 0
    while start < len(raw):
        end = start + _PIECE
        if raw[end - 1 : end] == b"\\":
            # No escape may be cut in two.
            run = _BACKSLASHES.match(raw, end)
            end = (run.end() if run else end) + 1
        piece = raw[start:end].replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        counted = _count(b"".join(parts[inside::2]))
        nests, values, names = nests + counted.nests, values + counted.values - 1, names + counted.names
        inside ^= len(parts) % 2 == 0
        start = end
    return _Count(nests, values, names)


def dumps(value: object) -> str:
    """Write JSON for people and for digests: sorted keys, two spaces, nothing that ``loads`` refuses."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ManifestError(f"names {twice!r} twice")
    return found


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


# One for all: making a decoder takes as long as decoding a small file.
_DECODER = json.JSONDecoder(
    object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_float=_finite, parse_int=_short_int
)


def _check(value: object, what: str, depth: int) -> None:
    """Walk the parsed value once: depth, and strings that could not be written again."""
    if depth < 0:
        raise ManifestError(f"{what} is nested too deeply", code="bad_json")
    if isinstance(value, str):
        if not value.isprintable() and any("\ud800" <= c <= "\udfff" for c in value):
            raise ManifestError(f"{what} holds half of a surrogate pair", code="bad_json")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check(key, what, depth - 1)
            _check(item, what, depth - 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, what, depth - 1)
