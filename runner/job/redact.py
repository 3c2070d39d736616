r"""Keeping what must not be known out of what is passed on: secrets, also in pieces and in common encodings.

A secret is found as it is, in hexadecimal, in base64 at each of its three alignments, and where any of its characters
is escaped as in a URL (`%41`) or in JSON (`\u0041`). Not found is what somebody hid on purpose: reversed, encrypted,
a character a line. Redaction guards against accidents; against a hostile job, that it cannot read the secret.
"""

from __future__ import annotations

import base64
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

REDACTED = "[redacted]"

# Encoded, a shorter secret would be found in ordinary text.
_LEAST_ENCODED = 8
_ESCAPE = re.compile(r'%([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})|\\(["\\/bfnrt])')
_BEGUN_ESCAPE = re.compile(r"(?:%[0-9A-Fa-f]?|\\(?:u[0-9A-Fa-f]{0,3})?)\Z")
_LONGEST_ESCAPE = 6
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}

Span = tuple[int, int]


class Redactor:
    """Takes text in pieces and gives it out without the secrets.

    Where forms overlap, the one that begins first is taken, and of those the longest. At most as much is held back as
    the longest form is long, and only where one may have begun.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = sorted(
            {form for secret in secrets if secret for form in forms_of(secret)}, key=_longest_first
        )
        self._forms = forms
        self._any = re.compile("|".join(map(re.escape, forms)))
        self._longest = max(map(len, forms), default=0)
        self._by_first: defaultdict[str, list[str]] = defaultdict(list)
        for form in forms:
            self._by_first[form[0]].append(form)
        self._pending = ""

    def feed(self, text: str) -> str:
        """Take some more text and return what is safe to pass on."""
        if not self._forms:
            return text
        text = self._pending + text
        views = _views(text)
        held = min(self._held(view) for view in views)
        spans = [span for span in self._spans(views) if span[0] < held]
        end = max(held, spans[-1][1]) if spans else held
        self._pending = text[end:]
        return _replace(text[:end], spans)

    def close(self) -> str:
        """Return what was held back: nothing more will come."""
        text, self._pending = self._pending, ""
        return _replace(text, self._spans(_views(text))) if self._forms else text

    def finds(self, data: bytes) -> bool:
        """Say whether a secret stands in a file."""
        return bool(self._forms and self._spans(_views(data.decode("utf-8", "replace"))))

    def _spans(self, views: Sequence[View]) -> list[Span]:
        """Return where secrets stand, in order, overlapping ones as one."""
        found = [
            view.place(match.start(), match.end())
            for view in views
            if any(form in view.text for form in self._forms)
            for match in self._any.finditer(view.text)
        ]
        merged: list[Span] = []
        for start, end in sorted(found):
            if merged and start < merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        return merged

    def _held(self, view: View) -> int:
        """Return where the first form begins that the end of the text may cut off."""
        text = view.text
        for i in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[i] in self._by_first:
                rest = text[i:]
                if any(len(form) > len(rest) and form.startswith(rest) for form in self._by_first[text[i]]):
                    return view.start_of(i)
        return view.end


def forms_of(secret: str) -> set[str]:
    """Return the forms in which a secret is looked for, besides those that only escape characters."""
    raw = secret.encode("utf-8", "surrogateescape")
    if len(raw) < _LEAST_ENCODED:
        return {secret}
    forms = {secret, raw.hex(), raw.hex().upper()}
    for before in range(3):
        # What stands before and after shares the first and the last character with it.
        first, last = (before * 8 + 5) // 6, (before + len(raw)) * 8 // 6
        padded = bytes(before) + raw
        forms |= {
            encode(padded).decode()[first:last] for encode in (base64.b64encode, base64.urlsafe_b64encode)
        }
    return forms


@dataclass(frozen=True)
class View:
    """A text, or what it says once escapes are undone, with the way back to where things stand in it.

    `starts` and `offsets`: from each such place on, this much is added to a place in `text`. `end` is where the text
    ends, or where an escape begins that it cuts off.
    """

    text: str
    end: int
    starts: Sequence[int] = ()
    offsets: Sequence[int] = ()

    def start_of(self, i: int) -> int:
        """Return where the character at `i` begins in the original."""
        k = bisect_right(self.starts, i)
        return i + (self.offsets[k - 1] if k else 0)

    def place(self, start: int, end: int) -> Span:
        """Return a span of this view in the original."""
        return self.start_of(start), self.start_of(end)


def _views(text: str) -> list[View]:
    """Return the text as it is and, where it holds escapes, with these undone."""
    plain = View(text, len(text))
    if "%" not in text and "\\" not in text:
        return [plain]
    begun = _BEGUN_ESCAPE.search(text, max(0, len(text) - _LONGEST_ESCAPE))
    whole = text[: begun.start()] if begun else text
    pieces: list[str] = []
    starts: list[int] = []
    offsets: list[int] = []
    at = length = 0
    for match in _ESCAPE.finditer(whole):
        pieces += (whole[at : match.start()], _undo(match))
        length += match.start() - at + 1
        at = match.end()
        starts.append(length)
        offsets.append(at - length)
    return [plain, View("".join([*pieces, whole[at:]]), len(whole), starts, offsets)]


def _undo(match: re.Match[str]) -> str:
    url, json, short = match.groups()
    return chr(int(url or json, 16)) if url or json else _SHORT.get(short, short)


def _replace(text: str, spans: Sequence[Span]) -> str:
    if not spans:
        return text
    pieces, at = [], 0
    for start, end in spans:
        pieces += [text[at:start], REDACTED]
        at = end
    return "".join([*pieces, text[at:]])


def _longest_first(form: str) -> tuple[int, str]:
    return -len(form), form
