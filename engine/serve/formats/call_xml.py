"""Reads calls whose arguments are text between marks, as in XML, character by character.

A long argument that can only be text is given out as the model writes it. Others are converted once they are complete,
by the parser of the whole call's form.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.serve.formats import calls
from engine.serve.formats.call_text import (
    LONGEST,
    SHORT,
    Chars,
    NoCallError,
    Sink,
    after_blank,
    one_of,
    until,
)
from engine.stop_strings import hopeful

QUOTED = re.compile(r"\b{}=\"([^\"]*)\"")
CDATA = "<![CDATA["
Read = Callable[[str], list[dict[str, str]]]


@dataclass(frozen=True)
class Form:
    """The marks of a form of calls. An empty mark is not written."""

    opens: str  # before a function's name
    named: str  # behind it; nothing but the first argument follows it if this is empty
    key: str  # before an argument's name
    keyed: str  # behind it
    valued: str  # behind the argument's text
    closes: str = ""  # behind the last argument
    value: str = ""  # before the argument's text
    name_in: str = ""  # the attribute that has the function's name, if it is not alone
    key_in: str = ""  # the same for an argument's name
    lines: bool = False  # whether only the line end at either side of an argument's text is not part of it
    exact: bool = False  # whether all of an argument's text is part of it
    whole: tuple[str, str] | None = None  # the marks around all arguments as one JSON object


GLM = Form("", "", "<arg_key>", "</arg_key>", "</arg_value>", value="<arg_value>")
LONGCAT = Form(
    "",
    "",
    "<longcat_arg_key>",
    "</longcat_arg_key>",
    "</longcat_arg_value>",
    value="<longcat_arg_value>",
)
ATEM = "atem:"
# The forms of calls by the module of mlx-lm's parser.
FORMS = {
    "qwen3_coder": Form(
        "<function=", ">", "<parameter=", ">", "</parameter>", closes="</function>", lines=True
    ),
    "glm47": GLM,
    "laguna": GLM,
    "longcat": LONGCAT,
    "minimax_m2": Form("<invoke name=", ">", "<parameter name=", ">", "</parameter>", closes="</invoke>"),
    "minicpm5": Form("", ">", "<param name=", ">", "</param>"),
    "muse_spark": Form(
        f"<{ATEM}invoke name=",
        ">",
        f"<{ATEM}parameter name=",
        ">",
        f"</{ATEM}parameter>",
        closes=f"</{ATEM}invoke>",
    ),
    "kimi_k3": Form(
        "<|open|>call",
        "<|sep|>",
        "<|open|>argument",
        "<|sep|>",
        "<|close|>argument<|sep|>",
        closes="<|close|>call<|sep|>",
        name_in="tool",
        key_in="key",
        exact=True,
        whole=("<|open|>json", "<|close|>json<|sep|>"),
    ),
}


def xml_calls(form: Form, parse: calls.Parser) -> Callable[[Sink], Chars[None]]:
    """Return the reader of calls in a form; ``parse`` reads whole calls."""

    def pieces(sink: Sink) -> Chars[None]:
        character = yield from after_blank((yield))
        while character:
            if form.opens:
                yield from one_of((form.opens,), character)
                character = ""
            head = yield from until((form.named or form.key,), character)
            name = name_of(head, form.name_in)
            sink.require(name)
            read = partial(calls.read, parse=parse, tools=[sink.functions.tools[name]])
            call = _Call(form, sink, name, f"{form.opens}{head}{form.named}", read)
            yield from call.arguments()
            if not form.closes:  # the call ends with the text
                return
            character = yield from after_blank((yield))

    return pieces


class _Call:
    """A call whose name is known."""

    def __init__(self, form: Form, sink: Sink, name: str, head: str, read: Read) -> None:
        self._form, self._sink, self._name, self._head, self._read = form, sink, name, head, read

    def arguments(self) -> Chars[None]:
        """Read the arguments up to the end of the call."""
        marks = tuple(filter(None, (self._form.key, self._form.closes)))
        mark = (yield from self._next(marks)) if self._form.named else self._form.key
        self._sink.begin(self._name)
        while mark == self._form.key:
            yield from self._argument()
            mark = yield from self._next(marks)
        self._sink.close()

    def _next(self, marks: Sequence[str]) -> Chars[str]:
        character = yield from after_blank((yield))
        at_end = not character and not self._form.closes
        return "" if at_end else (yield from one_of(marks, character))

    def _argument(self) -> Chars[None]:
        form = self._form
        head = yield from until((form.keyed,))
        key = name_of(head, form.key_in)
        if form.value:
            yield from one_of((form.value,), (yield from after_blank((yield))))
        before = f"{form.key}{head}{form.keyed}{form.value}"
        types = self._sink.functions.types(self._name, key)
        streams = types == frozenset({"string"}) and (not form.key_in or 'type="string"' in head)
        pending, streamed = "", False
        while not pending.endswith(form.valued):
            character = yield
            pending += character
            if not character or len(pending) > LONGEST:
                raise NoCallError(key)
            if streams and not streamed and len(pending) > SHORT:
                streams = streamed = not pending.lstrip().startswith(CDATA)
                if streamed:
                    pending = self._trimmed(pending)
                    self._sink.key(key)
                    self._sink.write('"')
            if streamed:
                text = self._certain(pending)
                self._write(text)
                pending = pending[len(text) :]
        value = pending.removesuffix(form.valued)
        if streamed:
            self._write(value.removesuffix("\n") if form.lines else value.rstrip())
            self._sink.write('"')
            return
        (call,) = self._read(f"{self._head}{before}{value}{form.valued}{form.closes}")
        self._sink.give(json.loads(call["arguments"]))

    def _trimmed(self, text: str) -> str:
        return text.removeprefix("\n") if self._form.lines else text.lstrip()

    def _certain(self, text: str) -> str:
        """Return the text without a possible end of the argument, and without blanks before that end."""
        body = text[: len(text) - hopeful(text, (self._form.valued,))].removesuffix(self._form.valued)
        return body.removesuffix("\n") if self._form.lines else body.rstrip()

    def _write(self, text: str) -> None:
        if text:
            self._sink.write(json.dumps(text, ensure_ascii=False)[1:-1])


def name_of(head: str, attribute: str) -> str:
    """Return a name that stands between marks, or in an attribute of a mark."""
    if attribute:
        match = re.search(QUOTED.pattern.format(attribute), head)
        return match[1].replace("&quot;", '"').replace("&amp;", "&") if match else ""
    return head.strip().strip("\"'")


def pieces_of(parse: calls.Parser) -> Callable[[Sink], Chars[Any]] | None:
    """Return the reader of pieces for one of mlx-lm's parsers; None if its form is unknown."""
    form = FORMS.get(calls.form_name(parse))
    return xml_calls(form, parse) if form is not None else None
