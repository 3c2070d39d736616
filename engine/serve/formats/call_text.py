"""Reads the text between the marks of a call while it arrives, so that clients need not wait for the call's end.

A short call is read once it is complete, and is text if it is no call. A longer one is given out in pieces: first its
name, then its arguments as JSON. If such a call turns out to be malformed, it stays as it is, incomplete.
"""

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from engine.serve.formats.calls import Functions

T = TypeVar("T")
# A generator that reads characters: it is sent single characters, and an empty text at the end. It yields True while a
# text is open whose end is written, such as a quote: until then, a mark is a part of the text.
Chars = Generator[Any, str, T]
Event = tuple[str, Any]  # ("call", name, arguments and id), ("arguments", more of them) or ("text", no call)

SHORT = 64  # characters of a call that is read once it is complete
LONG = 512  # the same for a call of which only the name is known
LONGEST = 1 << 16  # characters that are held back at most, because they can only be converted as a whole
BLANK = " \t\r\n"


class NoCallError(ValueError):
    """The text is no call of one of the functions."""


class UnknownFormError(ValueError):
    """The text may be a call, but can only be read as a whole."""


class Sink:
    """Takes the calls of some functions that a reader finds."""

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.events: list[Event] = []
        self.open = False  # whether a call is incomplete
        self.has_content = False  # whether there is more than brackets of an argument
        self._separator = ""

    def begin(self, name: str, call_id: str | None = None) -> None:
        """Begin a call's arguments."""
        self.require(name)
        self.events.append(("call", {"name": name, "arguments": "", **({"id": call_id} if call_id else {})}))
        self.events.append(("arguments", "{"))
        self.open, self._separator = True, ""

    def require(self, name: str) -> None:
        """Raise NoCallError for a name of no function."""
        if name not in self.functions.tools:
            raise NoCallError(name)

    def key(self, name: str) -> None:
        """Begin an argument."""
        self.events.append(("arguments", f"{self._separator}{json.dumps(name, ensure_ascii=False)}: "))
        self._separator = ", "

    def write(self, text: str) -> None:
        """Add JSON text to the arguments."""
        self.has_content = self.has_content or bool(text.strip(f"{BLANK}[{{"))
        self.events.append(("arguments", text))

    def give(self, arguments: dict[str, Any]) -> None:
        """Add complete arguments; ValueError if no client can read them: a JSON text can hold halves of characters."""
        for name, value in arguments.items():
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
            f"{name}{text}".encode()
            self.key(name)
            self.write(text)

    def close(self) -> None:
        """End the call."""
        self.events.append(("arguments", "}"))
        self.open = False


class CallText:
    """The text between the marks of a call.

    Args:
        read: converts a whole text to calls, as ``engine.serve.formats.calls.read`` does; None finds none.
        pieces: reads characters into a sink; None if the form can only be read as a whole.
        functions: what can be called.
    """

    def __init__(
        self,
        read: Callable[[str], list[dict[str, str]]] | None,
        pieces: Callable[[Sink], Chars[None]] | None = None,
        functions: Functions | None = None,
    ) -> None:
        self._read, self._sink = read, Sink(functions or Functions(()))
        self._chars = pieces(self._sink) if pieces is not None else None
        if self._chars is not None:
            next(self._chars)
        self._raw = ""  # the text so far, until a part of a call is given out
        self._prompted = 0  # characters of it that belong to the prompt
        self.rest = ""  # the text after a fault
        self.begun = False  # whether a part of a call was given out
        self.quoted = False  # whether a text is open whose end is written
        self.refuted = False  # whether the rest is text
        self.broken = False  # whether a call was given out that is not whole

    def forget(self) -> None:
        """Treat the text so far as the prompt's: if it is no call, it does not become text of the answer."""
        self._prompted = len(self._raw)

    def add(self, text: str) -> list[Event]:
        """Return the events of more text. If the text turns out to be no call, ``rest`` is the part after the fault."""
        self.rest = ""
        if self.refuted:
            return [("text", text)]
        for i, character in enumerate(text):
            if not self._takes(character):
                self.rest = text[i:]
                return self._refute()
            if not self.begun:
                self._raw += character
                self.begun = bool(self._sink.events) and len(self._raw) > (
                    SHORT if self._sink.has_content else LONG
                )
        return self._events() if self.begun else []

    def end(self, *, cut: bool = False) -> list[Event]:
        """Return the events at the end of the call, which something other than the model may have ``cut``."""
        if self.refuted:
            return []
        if self.begun:
            if not cut:
                self._takes("")
            self.broken = self._sink.open
            return self._events()
        try:
            calls = self._read(self._raw) if self._read is not None and not cut else []
        except Exception:  # noqa: BLE001 - parsers of many models fail in many ways
            calls = []
        return [("call", call) for call in calls] if calls else self._refute()

    def _takes(self, character: str) -> bool:
        """Return whether the next character, or the end, may belong to a call."""
        self.quoted = False
        if self._chars is None:
            return len(self._raw) < LONGEST
        try:
            with suppress(StopIteration):
                self.quoted = bool(self._chars.send(character))
        except UnknownFormError:
            self._chars = None
            return not self.begun
        except (ValueError, RecursionError):
            return False
        return True

    def _refute(self) -> list[Event]:
        self.refuted, self.broken = True, self.begun and self._sink.open
        events = self._events() if self.begun else []
        text, self._raw = self._raw[self._prompted :], ""
        return events + ([("text", text)] if text and not self.begun else [])

    def _events(self) -> list[Event]:
        """Return the events since the previous ones, with the arguments in one piece."""
        fresh, self._sink.events = self._sink.events, []
        events: list[Event] = []
        for kind, value in fresh:
            if kind == "arguments" and events and events[-1][0] == kind:
                events[-1] = kind, events[-1][1] + value
            else:
                events.append((kind, value))
        return events


def after_blank(character: str, put: Callable[[str], Any] | None = None) -> Chars[str]:
    """Return the first character that is not blank, from this one on."""
    while character and character in BLANK:
        if put is not None:
            put(character)
        character = yield
    return character


def until(marks: Sequence[str], first: str = "") -> Chars[str]:
    """Return the text before the first of these marks; NoCallError if it is long."""
    text = first
    while not (mark_found := next((mark for mark in marks if text.endswith(mark)), "")):
        character = yield
        text += character
        if not character or len(text) > LONGEST >> 6:
            raise NoCallError(text[:SHORT])
    return text.removesuffix(mark_found)


def one_of(marks: Sequence[str], character: str) -> Chars[str]:
    """Return which of these marks comes next; UnknownFormError if none does."""
    text = character
    while text not in marks:
        if not any(mark.startswith(text) for mark in marks) or not character:
            raise UnknownFormError(text)
        character = yield
        text += character
    return text


class PendingValue:
    """Collects text that can only be converted as a whole."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._size = 0

    def __call__(self, text: str) -> None:
        """Add text; NoCallError if there is too much."""
        self._pieces.append(text)
        self._size += len(text)
        if self._size > LONGEST:
            raise NoCallError(text[:SHORT])

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)
