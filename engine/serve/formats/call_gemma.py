"""Reads Gemma's calls, ``call:NAME{KEY:VALUE,...}``, character by character. Text has marks instead of quotes."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from engine.serve.formats import calls
from engine.serve.formats.call_text import Chars, NoCallError, PendingValue, Sink, after_blank, one_of, until
from engine.stop_strings import hopeful

QUOTES = {"gemma4": '<|"|>', "function_gemma": "<escape>"}  # by the module of mlx-lm's parser
STRING = frozenset({"string"})


def gemma_calls(quote: str, parse: calls.Parser) -> Callable[[Sink], Chars[Any]]:
    """Return a reader for calls whose texts stand between this mark. ``parse`` reads a complete call."""

    def pieces(sink: Sink) -> Chars[Any]:
        character = yield from after_blank((yield))
        while character:
            yield from one_of(("call:",), character)
            name = (yield from until(("{",))).strip()
            sink.begin(name)
            read = partial(calls.read, parse=parse, tools=[sink.functions.tools[name]])
            character = yield from after_blank((yield))
            while character != "}":
                key = (yield from until((":",), character)).strip()
                first = yield from after_blank((yield))
                if first == quote[0]:
                    yield from one_of((quote,), first)
                if first == quote[0] and sink.functions.types(name, key) == STRING:
                    yield from _text(sink, key, quote)
                    character = yield
                else:
                    value, character = yield from _value(first, quote)
                    (call,) = read(f"call:{name}{{{key}:{value}}}")
                    sink.give(json.loads(call["arguments"]))
                character = yield from after_blank(character)
                if character == ",":
                    character = yield from after_blank((yield))
                elif character != "}":
                    raise NoCallError(key)
            sink.close()
            character = yield from after_blank((yield))

    return pieces


def _text(sink: Sink, key: str, quote: str) -> Chars[None]:
    """Pass on text up to the mark that ends it."""
    sink.key(key)
    sink.write('"')
    pending = ""
    while pending != quote:
        character = yield True
        if not character:
            raise NoCallError(key)
        pending += character
        size = len(pending) - (hopeful(pending, (quote,)) if pending != quote else len(quote))
        if size:
            sink.write(json.dumps(pending[:size], ensure_ascii=False)[1:-1])
            pending = pending[size:]
    sink.write('"')


def _value(first: str, quote: str) -> Chars[tuple[str, str]]:
    """Return any value in its written form, and the character behind it. The mark before a text was already read."""
    pending, quoted, depth = PendingValue(), first == quote[0], 0
    pending(quote if quoted else first)
    depth += first in ("{", "[")
    tail = ""
    while True:
        character = yield quoted
        if not character:
            raise NoCallError(first)
        if not quoted and not depth and character in ",}":
            return pending.text, character
        pending(character)
        tail = (tail + character)[-len(quote) :]
        if tail == quote:
            quoted, tail = not quoted, ""
        elif not quoted:
            depth += (character in "{[") - (character in "}]")
