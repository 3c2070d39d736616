"""Finds strings in a text that arrives in pieces, where a string may begin in one piece and end in another."""

from collections.abc import Iterable, Sequence
from typing import Protocol


class TextSplitter(Protocol):
    """What splits an answer's text into parts, of which some are not the answer's visible text."""

    @property
    def stopped(self) -> str | None:
        """The stop string in the visible text, once it is complete."""

    def add(self, text: str) -> object:
        """Read more text."""


class StopStrings:
    """Cuts a text that arrives in pieces before the first stop string."""

    def __init__(self, strings: Sequence[str]) -> None:
        self.strings = tuple(strings)
        self.matched: str | None = None
        self._waiting = ""

    def add(self, text: str) -> str:
        """Return the text that is final now."""
        if self.matched is not None:
            return ""
        self._waiting += text
        starts = [at for at in map(self._waiting.find, self.strings) if at >= 0]
        if starts:
            self.matched = next(s for s in self.strings if self._waiting.startswith(s, min(starts)))
        final = min(starts) if starts else len(self._waiting) - hopeful(self._waiting, self.strings)
        safe, self._waiting = self._waiting[:final], "" if starts else self._waiting[final:]
        return safe

    def flush(self) -> str:
        """At the end of the text, return what was held back."""
        safe, self._waiting = self._waiting, ""
        return safe


def hopeful(text: str, marks: Iterable[str]) -> int:
    """Return how many characters at the end of a text could be the beginning of one of these marks."""
    marks = [mark for mark in marks if mark]
    most = min(len(text), max((len(mark) - 1 for mark in marks), default=0))
    return next((n for n in range(most, 0, -1) if any(mark.startswith(text[-n:]) for mark in marks)), 0)
