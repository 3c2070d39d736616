r"""Removes secrets from logs and reports, even if they are split into pieces or in common encodings.

It finds a secret as plain text, in hexadecimal, in base64 at each of the three alignments, and with any of its
characters escaped as in a URL (``%41``) or in JSON (``\u0041``). It does not find a secret that somebody hides on
purpose, for example reversed, encrypted, or one character per line. So redaction protects only against accidents. The
protection against a hostile job is that the job cannot read the secret.
"""

import base64
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

REDACTED = "[redacted]"

# The encoded form of a shorter secret would often occur in ordinary text.
_LEAST_ENCODED = 8
_URL = r"%(?P<url>[0-9A-Fa-f]{2})"
_JSON = r'\\u(?P<code>[0-9A-Fa-f]{4})|\\(?P<short>["\\/bfnrt])'
_URL_BEGUN = r"%[0-9A-Fa-f]?"
_JSON_BEGUN = r"\\(?:u[0-9A-Fa-f]{0,3})?"
_LONGEST_ESCAPE = 6
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}

Span = tuple[int, int]


class Redactor:
    """Redacts text that arrives in pieces.

    If several forms of secrets overlap, the one that begins first is redacted, and among these the longest. Text is
    held back only if a secret may have begun in it, and at most as much as the longest form.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        every = {form for secret in secrets if secret for form in forms_of(secret)}
        forms = sorted(every, key=lambda form: (-len(form), form))
        self._forms = forms
        self._any = re.compile("|".join(map(re.escape, forms)))
        self._longest = max(map(len, forms), default=0)
        self._by_first: defaultdict[str, list[str]] = defaultdict(list)
        for form in forms:
            self._by_first[form[0]].append(form)
        self._pending = ""

    def feed(self, text: str) -> str:
        """Add text, and return the redacted text that is safe to pass on."""
        if not self._forms:
            return text
        text = self._pending + text
        views = _views(text, more=True)
        pending = min(self._held_from(view) for view in views)
        spans = [span for span in self._spans(views) if span[0] < pending]
        end = max(pending, spans[-1][1]) if spans else pending
        self._pending = text[end:]
        return _replace(text[:end], spans)

    def close(self) -> str:
        """Return the text that was held back."""
        text, self._pending = self._pending, ""
        return _replace(text, self._spans(_views(text, more=False))) if self._forms else text

    def contains_secret(self, data: bytes) -> bool:
        """Return whether a file contains a secret."""
        return bool(self._forms and self._spans(_views(data.decode("utf-8", "replace"), more=False)))

    def _spans(self, views: "Sequence[Unescaped]") -> list[Span]:
        """Return the spans of secrets in order, with overlapping ones merged."""
        spans = [
            (view.start_of(match.start()), view.start_of(match.end()))
            for view in views
            if any(form in view.text for form in self._forms)
            for match in self._any.finditer(view.text)
        ]
        merged: list[Span] = []
        for start, end in sorted(spans):
            if merged and start < merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        return merged

    def _held_from(self, view: "Unescaped") -> int:
        """Return where a form begins that the end of the text may truncate."""
        text = view.text
        for i in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[i] in self._by_first:
                rest = text[i:]
                if any(len(form) > len(rest) and form.startswith(rest) for form in self._by_first[text[i]]):
                    return view.start_of(i)
        return view.end


def forms_of(secret: str) -> set[str]:
    """Return the encoded forms of a secret, except those that only escape characters."""
    raw = secret.encode("utf-8", "surrogateescape")
    if len(raw) < _LEAST_ENCODED:
        return {secret}
    forms = {secret, raw.hex(), raw.hex().upper()}
    for before in range(3):
        # The first and last base64 characters also depend on the neighbouring bytes, so they are left out.
        first, last = (before * 8 + 5) // 6, (before + len(raw)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            forms.add(encode(bytes(before) + raw).decode()[first:last])
    return forms


@dataclass(frozen=True)
class Unescaped:
    """A text, original or unescaped, with a map from its positions to positions in the original text.

    From position ``starts[i]`` of ``text`` on, the original position is ``offsets[i]`` larger. ``end`` is the end of
    the original, or the start of an escape that the end truncates.
    """

    text: str
    end: int
    starts: Sequence[int] = ()
    offsets: Sequence[int] = ()

    def start_of(self, i: int) -> int:
        """Return the original position of the character at ``i``."""
        k = bisect_right(self.starts, i)
        return i + (self.offsets[k - 1] if k else 0)


# The marks of the escapes that a view undoes, such an escape, and its beginning at the end of a text. A secret may
# contain a text that looks like an escape of the other kind.
_ESCAPES = (
    ("%", re.compile(_URL), re.compile(rf"(?:{_URL_BEGUN})\Z")),
    ("\\", re.compile(_JSON), re.compile(rf"(?:{_JSON_BEGUN})\Z")),
    ("%\\", re.compile(f"{_URL}|{_JSON}"), re.compile(rf"(?:{_URL_BEGUN}|{_JSON_BEGUN})\Z")),
)


def _views(text: str, *, more: bool) -> list[Unescaped]:
    """Return the text itself and, for each kind of escape in it, the text with these escapes undone.

    ``more``: further text follows, which may complete an escape at the end of this text.
    """
    kinds = [(whole, begun) for marks, whole, begun in _ESCAPES if all(mark in text for mark in marks)]
    plain = Unescaped(text, len(text))
    return [plain, *(_unescaped(text, whole, begun if more else None) for whole, begun in kinds)]


def _unescaped(text: str, whole: re.Pattern[str], begun: re.Pattern[str] | None) -> Unescaped:
    pieces: list[str] = []
    starts: list[int] = []
    offsets: list[int] = []
    at = length = 0
    for match in whole.finditer(text):
        pieces += (text[at : match.start()], _undo(match))
        length += match.start() - at + 1
        at = match.end()
        starts.append(length)
        offsets.append(at - length)
    cut = begun.search(text, max(at, len(text) - _LONGEST_ESCAPE)) if begun else None
    end = cut.start() if cut else len(text)
    return Unescaped("".join([*pieces, text[at:end]]), end, starts, offsets)


def _undo(match: re.Match[str]) -> str:
    groups = match.groupdict()
    if code := groups.get("url") or groups.get("code"):
        return chr(int(code, 16))
    short = match["short"]
    return _SHORT.get(short, short)


def _replace(text: str, spans: Sequence[Span]) -> str:
    pieces, at = [], 0
    for start, end in spans:
        pieces += [text[at:start], REDACTED]
        at = end
    return "".join([*pieces, text[at:]])
