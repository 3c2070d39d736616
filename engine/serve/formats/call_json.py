"""Reads calls whose arguments are JSON, character by character.

What a schema allows as it stands is given out as the model writes it. Other arguments are converted once they are
complete, as ``engine.serve.formats.calls.read`` does.
"""

import json
import math
from collections.abc import Callable
from typing import Any

from engine.serve.formats.call_text import (
    Chars,
    NoCallError,
    PendingValue,
    Sink,
    UnknownFormError,
    after_blank,
    one_of,
    until,
)

DEEPEST = 150  # the most nested values, which every client's parser can read
LONGEST_SCALAR = 400
SCALAR = frozenset("+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
ESCAPES = '"\\/bfnrt'
FIRST_HALVES = range(0xD800, 0xDC00)  # of surrogate pairs
STRING = frozenset({"string"})
CONTAINERS = {"{": ("}", "object"), "[": ("]", "array")}
# A string with such a beginning may be a list, an object or null, if the schema allows these as well as text.
PERHAPS_NO_TEXT = "[{(#\\nN"
UNDECIDED = 4096  # characters of a string after which it stays a string
ARGUMENTS = ("arguments", "parameters")  # the second is Llama's word

DEEPSEEK_CALL, DEEPSEEK_NAME, DEEPSEEK_END = (
    f"<\uff5c{name}\uff5c>" for name in ("tool▁call▁begin", "tool▁sep", "tool▁call▁end")
)
KIMI_CALL, KIMI_NAME, KIMI_END = (
    f"<|{name}|>" for name in ("tool_call_begin", "tool_call_argument_begin", "tool_call_end")
)
MISTRAL_CALL, MISTRAL_NAME = "[TOOL_CALLS]", "[ARGS]"

Put = Callable[[str], Any]


def json_calls(sink: Sink) -> Chars[None]:
    """Read a call in the form ``{"name": ..., "arguments": ...}``, a list of them, or DeepSeek's calls."""
    first = yield from after_blank((yield))
    yield from (_deepseek if first == DEEPSEEK_CALL[0] else _objects)(sink, first)


def _objects(sink: Sink, character: str) -> Chars[None]:
    several = character == "["
    if several:
        character = yield from after_blank((yield))
    while True:
        character = yield from after_blank((yield from _object(sink, character)))
        if not several or character != ",":
            break
        character = yield from after_blank((yield))
    if several:
        _require(character, "]")
        character = yield from after_blank((yield))
    _require(character, "")


def _object(sink: Sink, character: str) -> Chars[str]:
    _require(character, "{")
    name, call_id, has_arguments = "", None, False
    character = yield from after_blank((yield))
    while True:
        key = yield from _quoted(character)
        _require((yield from after_blank((yield))), ":")
        character = yield from after_blank((yield))
        if key == "name":
            name = yield from _quoted(character)
            sink.require(name)
            character = yield
        elif key in ARGUMENTS and not has_arguments:
            if not name:  # it follows
                raise UnknownFormError(key)
            character, has_arguments = (yield from arguments(sink, name, character, call_id)), True
        else:
            pending = PendingValue()
            character = yield from _value(character, pending)
            call_id = json.loads(pending.text) if key == "id" and pending.text.startswith('"') else call_id
        character = yield from after_blank(character)
        if character == "}":
            break
        _require(character, ",")
        character = yield from after_blank((yield))
    if not has_arguments:
        sink.begin(name, call_id)
        sink.close()
    return (yield)


def mistral_calls(sink: Sink) -> Chars[None]:
    """Read Mistral's calls: a list of objects, or ``NAME[ARGS]{...}`` after each mark."""
    character = yield from after_blank((yield))
    if character == "[":
        yield from _objects(sink, character)
        return
    while character:
        name = yield from until((MISTRAL_NAME,), character)
        sink.require(name.strip())
        character = yield from after_blank((yield))
        character = yield from after_blank((yield from arguments(sink, name.strip(), character)))
        if character:
            yield from one_of((MISTRAL_CALL,), character)
            character = yield from after_blank((yield))


def _deepseek(sink: Sink, character: str) -> Chars[None]:
    """Read calls of DeepSeek V3.1; or of R1 and V3, which write their kind, and the arguments in a block of code."""
    while character:
        yield from one_of((DEEPSEEK_CALL,), character)
        name = yield from until((DEEPSEEK_NAME,))
        character = yield from after_blank((yield))
        fenced = character != "{"
        if fenced:
            name = yield from until(("```json",), character)
            character = yield from after_blank((yield))
        character = yield from after_blank((yield from arguments(sink, name.strip(), character)))
        if fenced and character == "`":
            yield from one_of(("```",), character)
            character = yield from after_blank((yield))
        yield from one_of((DEEPSEEK_END,), character)
        character = yield from after_blank((yield))


def kimi_calls(sink: Sink) -> Chars[None]:
    """Read Kimi's calls: a call's id contains the function's name."""
    character = yield from after_blank((yield))
    while character:
        yield from one_of((KIMI_CALL,), character)
        call_id = (yield from until((KIMI_NAME,))).strip()
        name = call_id.removeprefix("functions.").rpartition(":")[0]
        sink.require(name)
        character = yield from after_blank((yield))
        character = yield from after_blank((yield from arguments(sink, name, character, call_id)))
        yield from one_of((KIMI_END,), character)
        character = yield from after_blank((yield))


def only_arguments(name: str) -> Callable[[Sink], Chars[None]]:
    """Return the reader of a text that is nothing but a function's arguments."""

    def read(sink: Sink) -> Chars[None]:
        character = yield from after_blank((yield))
        _require((yield from after_blank((yield from arguments(sink, name, character)))), "")

    return read


def arguments(sink: Sink, name: str, character: str, call_id: str | None = None) -> Chars[str]:
    """Read a function's arguments, an object; return the character behind it."""
    sink.require(name)
    if character != "{":  # JSON in a string, or nothing
        pending = PendingValue()
        character = yield from _value(character, pending)
        value = json.loads(pending.text)
        if isinstance(value, str) and value.strip():
            value = json.loads(value)
        if not isinstance(value or {}, dict):
            raise NoCallError(name)
        sink.begin(name, call_id)
        sink.give(sink.functions.typed(name, value or {}))
        sink.close()
        return character
    character = yield from after_blank((yield))
    sink.begin(name, call_id)
    while character != "}":
        key = yield from _quoted(character)
        _require((yield from after_blank((yield))), ":")
        character = yield from after_blank((yield))
        character = yield from after_blank((yield from _argument(sink, name, key, character)))
        if character != "}":
            _require(character, ",")
            character = yield from after_blank((yield))
            _require(character, '"')
    sink.close()
    return (yield)


def _argument(sink: Sink, name: str, key: str, character: str) -> Chars[str]:
    types = sink.functions.types(name, key)
    if character in CONTAINERS and CONTAINERS[character][1] in types:
        sink.key(key)
        return (yield from _value(character, sink.write))
    if character == '"' and "string" in types:
        string = _String(sink, key, decided=types == STRING)
        character = yield from _value(character, string)
        if string.decided:
            return character
        pending = string.pending
    else:
        pending = PendingValue()
        character = yield from _value(character, pending)
    sink.give(sink.functions.typed(name, {key: json.loads(pending.text)}))
    return character


class _String:
    """Receives the text of a string, and passes it on once it is certain to be a string."""

    def __init__(self, sink: Sink, key: str, *, decided: bool) -> None:
        self._sink, self._key, self.decided, self.pending = sink, key, decided, PendingValue()
        if decided:
            sink.key(key)

    def __call__(self, text: str) -> None:
        if self.decided:
            self._sink.write(text)
            return
        self.pending(text)
        content = self.pending.text[1:]
        while content.startswith(("\\n", "\\r", "\\t")) or content[:1].isspace():
            content = content[1:] if content[0].isspace() else content[2:]
        closed = content.startswith('"')
        if len(content) > UNDECIDED or (content and not closed and content[0] not in PERHAPS_NO_TEXT):
            self.decided = True
            self._sink.key(self._key)
            self._sink.write(self.pending.text)


def _value(character: str, put: Put, depth: int = 0) -> Chars[str]:
    """Read any value, and pass its text on; return the character behind it."""
    if character == '"':
        yield from _string(put)
        return (yield)
    if character in CONTAINERS:
        if depth == DEEPEST:
            raise NoCallError("nested too deeply")
        yield from _container(character, put, depth)
        return (yield)
    text = ""
    while character in SCALAR and len(text) < LONGEST_SCALAR:
        text += character
        character = yield
    value = json.loads(text)
    if isinstance(value, float) and not math.isfinite(value):
        raise NoCallError(text)
    put(text)
    return character


def _container(opening: str, put: Put, depth: int) -> Chars[None]:
    closing = CONTAINERS[opening][0]
    put(opening)
    character = yield from after_blank((yield), put)
    while character != closing:
        if opening == "{":
            _require(character, '"')
            yield from _string(put)
            _require((yield from after_blank((yield), put)), ":")
            put(":")
            character = yield from after_blank((yield), put)
        character = yield from after_blank((yield from _value(character, put, depth + 1)), put)
        if character != closing:
            _require(character, ",")
            put(",")
            character = yield from after_blank((yield), put)
            if character == closing:
                raise NoCallError("a comma before the end")
    put(closing)


def _string(put: Put) -> Chars[None]:
    """Read a string after its opening quote. Halves of surrogate pairs are refused: no client can write them."""
    put('"')
    while (character := (yield True)) != '"':
        if character < " ":  # or at the end, which is empty
            raise NoCallError("a control character")
        if character != "\\":
            put(character)
            continue
        kind = yield
        if kind == "u":
            code = yield from _code()
            text = f"\\u{code}"
            if int(code, 16) in FIRST_HALVES:
                _require((yield), "\\")
                _require((yield), "u")
                text += f"\\u{yield from _code()}"
            json.loads(f'"{text}"').encode()  # UnicodeEncodeError is a ValueError
            put(text)
        elif kind and kind in ESCAPES:
            put(character + kind)
        else:
            raise NoCallError("no escape")
    put('"')


def _code() -> Chars[str]:
    digits = ""
    for _ in range(4):
        digits += yield
    if not all(digit in "0123456789abcdefABCDEF" for digit in digits) or len(digits) != 4:  # noqa: PLR2004
        raise NoCallError("no escape")
    return digits


def _quoted(character: str) -> Chars[str]:
    """Return the text of a string that begins with this character."""
    _require(character, '"')
    pending = PendingValue()
    yield from _string(pending)
    text: str = json.loads(pending.text)
    return text


def _require(character: str, expected: str) -> None:
    if character != expected:
        raise NoCallError(f"{character!r} instead of {expected!r}")
