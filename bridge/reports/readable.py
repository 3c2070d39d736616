"""A job's log for people: without the lines of digests, which only the gate reads.

The log's file, ``--json`` and the Python API keep them.
"""

import re

from bridge.reports.digests import DIGESTS, VOUCHED

# Match whole lines only, so that no other output is hidden. The pattern begins with plain text, which is
# found fast in a long log.
_BEGIN = "kakeya-"
_REST = "|".join(pattern.decode().removeprefix(_BEGIN) for pattern in (*DIGESTS, VOUCHED))
_PATTERN = rf"{_BEGIN}(?<![^\n]{_BEGIN})(?:{_REST})(?:\n|\Z)"
_LINE, _LINE_OF_BYTES = re.compile(_PATTERN), re.compile(_PATTERN.encode())
# No line of digests is longer. Its beginning consists of these characters.
_LONGEST = 160
_PART = re.compile(r"[a-z0-9 -]*")


class Readable:
    """Removes the lines of digests from a log that arrives in pieces, whatever line a piece ends in."""

    def __init__(self) -> None:
        self._pending = ""
        self._in_line = False

    def add(self, piece: str) -> str:
        """Return the text to show after this piece. An incomplete line of digests is held back for now."""
        text = self._pending + piece
        end = text.rfind("\n") + 1
        whole, last = text[:end], text[end:]
        shown = _without(whole, in_line=self._in_line)
        in_line = self._in_line and not end
        self._pending = "" if in_line or not _may_begin(last) else last
        self._in_line = in_line or bool(last and not self._pending)
        return shown if self._pending else shown + last

    def end(self) -> str:
        """Return what is left after the last piece."""
        last, self._pending = self._pending, ""
        return _without(last, in_line=False)


def readable(text: str) -> str:
    """Return a whole log without the lines of digests."""
    return _without(text, in_line=False)


def without_digests(log: bytes) -> bytes:
    """Do the same to the bytes of a log's file."""
    return _LINE_OF_BYTES.sub(b"", log)


def _without(text: str, *, in_line: bool) -> str:
    """Return text without lines of digests. ``in_line``: it begins within a line."""
    if not in_line:
        return _LINE.sub("", text)
    end = text.find("\n") + 1
    return text[:end] + _LINE.sub("", text[end:]) if end else text


def _may_begin(line: str) -> bool:
    """Return whether more text could make this beginning of a line a line of digests."""
    is_like = line.startswith(_BEGIN) or _BEGIN.startswith(line)
    return bool(line) and len(line) <= _LONGEST and is_like and _PART.fullmatch(line) is not None
