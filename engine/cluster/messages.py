"""What ranks tell the supervisor: a JSON object a line, through the launcher's standard output.

Each line begins with the record separator of RFC 7464. The launcher merges the outputs of all ranks in pieces of 8 KiB,
so another rank's lines can end up in the middle of a line; ``Reader`` puts such a line together again.
"""

import json
import threading
from collections.abc import Iterator
from os import write
from typing import Any

MARK = b"\x1e"
MOST_LINE = 1 << 20
_STDOUT = 1
_LOCK = threading.Lock()


def send(event: str, **fields: Any) -> None:
    """Write a message to standard output, in one piece if it is short."""
    line = b"\n" + MARK + json.dumps({"event": event, **fields}, allow_nan=False).encode() + b"\n"
    with _LOCK:
        while line:
            line = line[write(_STDOUT, line) :]


class Reader:
    """Finds the messages in the launcher's output."""

    def __init__(self) -> None:
        self._rest = b""
        self._cut = b""

    def add(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the messages that are complete now. Other output is ignored."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-MOST_LINE:]
        for line in lines:
            text = line.strip(b"\r")
            message = self._parse(text)
            if message is not None:
                yield message

    def _parse(self, line: bytes) -> dict[str, Any] | None:
        if line.startswith(MARK):
            message = _object(line[1:])
            if message is None:
                self._cut = line[1:]
            return message
        if self._cut and line:
            message = _object(self._cut + line)
            self._cut = b"" if message is not None else self._cut
            return message
        return None


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) and isinstance(value.get("event"), str) else None
