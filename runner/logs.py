"""One job's output, made harmless and bounded: what is kept, what is streamed, and a digest over all of it."""

from __future__ import annotations

import codecs
import hashlib
import io
import re
import threading
from collections.abc import Iterable

from runner.redact import REDACTED, Redactor

__all__ = ["CHUNK_BYTES", "REDACTED", "LogSink"]

CHUNK_BYTES = 256 * 1024
_SLACK = 64 * 1024

# Terminal control (ESC, CSI and the rest of C0 and C1) and marks that reorder text become visible stand-ins.
_TABLE = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
_TABLE |= dict.fromkeys(
    [*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029], "\ufffd"
)

# What needs no second look: printed ASCII, lines and tabs.
_PLAIN = bytes([*range(0x20, 0x7F), *b"\n\t"])
_UNSAFE = re.compile("[" + "".join(map(re.escape, map(chr, _TABLE))) + "]")

# GitHub's runner takes lines that begin with `::` (after white space) or hold `##[` as commands to itself.
_COMMAND = re.compile(r"(?m)^([^\S\n]*:)(?=:)")
_MARK = re.compile(r"##(?=\[)")


class LogSink:
    """Takes a program's output as bytes and gives out text. Safe for one writer and one reader in two threads.

    At most `limit` bytes are kept: a third from the beginning, the rest from the end. `secrets` never appear,
    also where they arrive in two pieces.
    """

    def __init__(self, limit: int, secrets: Iterable[str] = ()) -> None:
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
        self._redactor = Redactor(secrets)
        self._line = ""
        self._head = bytearray()
        self._head_limit = limit // 3
        self._tail = bytearray()
        self._tail_limit = limit - self._head_limit
        self._digest = hashlib.sha256()
        self._stream = bytearray()
        self._unstreamed = 0
        self._lock = threading.Lock()
        self.total = 0
        self.truncated = False

    def write(self, data: bytes) -> None:
        """Take some more output."""
        with self._lock:
            self._take(self._redactor.feed(self._decoder.decode(data)))

    def close(self) -> None:
        """Take what was held back: nothing more will come."""
        with self._lock:
            self._take(self._redactor.feed(self._decoder.decode(b"", final=True)))
            self._take(self._redactor.close())

    def take_chunk(self) -> bytes:
        """Return what is new since the last call; past CHUNK_BYTES a line says how much was left out."""
        with self._lock:
            chunk = bytes(self._stream)
            if self._unstreamed:
                whole = _whole_letters(chunk)
                left = self._unstreamed + len(chunk) - len(whole)
                chunk = whole + f"\n[{left} bytes not streamed: the answer will hold the log]\n".encode()
            self._stream.clear()
            self._unstreamed = 0
        return chunk

    def give_back(self, chunk: bytes) -> None:
        """Take back a chunk that could not be sent, as far as there is room."""
        with self._lock:
            room = max(0, CHUNK_BYTES - len(self._stream))
            self._unstreamed += max(0, len(chunk) - room)
            self._stream[:0] = chunk[:room]

    @property
    def kept(self) -> bytes:
        """The log as it is stored."""
        with self._lock:
            if not self.truncated:
                return bytes(self._head + self._tail)
            head, tail = _whole_letters(self._head), _whole_letters(self._tail[-self._tail_limit :])
            left_out = self.total - len(head) - len(tail)
            # No new line before the tail: what begins it was not at the beginning of a line.
            return head + f"\n[... {left_out} bytes left out ...] ".encode() + tail

    @property
    def sha256(self) -> str:
        """The digest of the whole log, in hexadecimal, what was left out included."""
        return self._digest.hexdigest()

    def _take(self, text: str) -> None:
        if not text:
            return
        if text.isascii():
            data = text.encode()
            if data.translate(None, _PLAIN):
                text = text.translate(_TABLE)
        elif _UNSAFE.search(text):
            text = text.translate(_TABLE)
        self._store(self._harmless(text).encode("utf-8", "replace"))

    def _harmless(self, text: str) -> str:
        """Break up what GitHub's runner would take for a command, also where it arrives in pieces.

        `self._line` stands for the line that has begun: empty while it is only white space, `:` after a first
        colon, else `x` and up to two number signs.
        """
        if "::" in text or ("#" in text and "##[" in text) or (self._line and text[0] in ":#["):
            text = _MARK.sub("## ", _COMMAND.sub(r"\1 ", self._line + text))[len(self._line) :]
        start = text.rfind("\n") + 1
        begun = (text[start:] if start else self._line + text).lstrip()
        if begun not in ("", ":"):
            begun = "x" + begun[-2:][len(begun[-2:].rstrip("#")) :]
        self._line = begun
        return text

    def _store(self, data: bytes) -> None:
        self._digest.update(data)
        self.total += len(data)
        room = max(0, CHUNK_BYTES - len(self._stream))
        self._stream += data[:room]
        self._unstreamed += max(0, len(data) - room)
        fits = self._head_limit - len(self._head)
        self._head += data[:fits]
        self._tail += data[fits:] if fits > 0 else data
        excess = len(self._tail) - self._tail_limit
        self.truncated = self.truncated or excess > 0
        if excess > _SLACK:
            del self._tail[:excess]


def _whole_letters(data: bytes | bytearray) -> bytes:
    """Return what was cut without the half of a letter that may be left at an end."""
    return data.decode("utf-8", "ignore").encode()
