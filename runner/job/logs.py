"""Sanitises and limits a job's output: keeps a part and the digest of the whole, and queues pieces for the branch.

All steps of a job share one stream, so a step's unsent output is sent before the first byte of the next step.
"""

import codecs
import hashlib
import io
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from runner.job.redact import REDACTED, Redactor

__all__ = ["REDACTED", "LogSink", "LogStream", "Piece"]

CHUNK_BYTES = 256 * 1024
_SLACK = 64 * 1024

# Control characters (ESC, CSI and the rest of C0 and C1) and marks that reorder text become visible placeholders.
_TABLE = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
_TABLE |= dict.fromkeys(
    [*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029], "\ufffd"
)

# Bytes that need no sanitising: printable ASCII, newlines and tabs.
_PLAIN = bytes([*range(0x20, 0x7F), *b"\n\t"])
_UNSAFE = re.compile("[" + "".join(map(re.escape, map(chr, _TABLE))) + "]")

# GitHub's runner executes lines that begin with `::` (after white space) or contain `##[` as workflow commands.
_COMMAND = re.compile(r"(?m)^([^\S\n]*:)(?=:)")
_MARK = re.compile(r"##(?=\[)")


@dataclass(frozen=True)
class Piece:
    """Output for one commit: ``left_out`` bytes that will never be streamed, then ``data``."""

    data: bytes = b""
    left_out: int = 0


class LogStream:
    """Output that is not on the branch yet. Safe for one writer and one reader thread.

    At most CHUNK_BYTES wait. If more arrives, it is dropped until the waiting bytes have been sent. ``tee`` gets all.
    """

    def __init__(self, tee: Callable[[bytes], None] = lambda _data: None) -> None:
        self._tee = tee
        self._waiting = bytearray()
        self._gap_before = 0
        self._gap_after = 0
        self._lock = threading.Lock()

    @property
    def has_pending(self) -> bool:
        """Return whether there is something to send."""
        return bool(self._waiting)

    def add(self, data: bytes) -> None:
        """Append output, which must consist of whole UTF-8 characters."""
        self._tee(data)
        with self._lock:
            room = 0 if self._gap_after else CHUNK_BYTES - len(self._waiting)
            fits = data if len(data) <= room else _whole_letters(data[:room])
            self._waiting += fits
            self._gap_after += len(data) - len(fits)

    def next_piece(self) -> Piece:
        """Return the next piece to send. It stays queued until ``mark_sent`` is called."""
        with self._lock:
            return Piece(bytes(self._waiting), self._gap_before)

    def mark_sent(self, piece: Piece) -> None:
        """Remove a piece that is on the branch now."""
        if not piece.data:
            return
        with self._lock:
            del self._waiting[: len(piece.data)]
            self._gap_before = 0
            if not self._waiting:
                self._gap_before, self._gap_after = self._gap_after, 0


def _whole_letters(data: bytes | bytearray) -> bytes:
    """Remove incomplete UTF-8 characters at the ends of a truncated text."""
    return data.decode("utf-8", "ignore").encode()


class LogSink:
    """Receives a program's output as bytes and provides sanitised text. Safe for one writer and one reader thread.

    It keeps at most ``limit`` bytes: a third from the beginning, the rest from the end. ``secrets`` never appear, even
    if they arrive in two pieces. All output also goes to ``stream``, which the steps of a job share.
    """

    def __init__(self, limit: int, secrets: Iterable[str] = (), stream: LogStream | None = None) -> None:
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
        self._redactor = Redactor(secrets)
        self._line = ""
        self._head = bytearray()
        self._head_limit = limit // 3
        self._tail = bytearray()
        self._tail_limit = limit - self._head_limit
        self._digest = hashlib.sha256()
        self._lock = threading.Lock()
        self._sealed = False
        self.stream = LogStream() if stream is None else stream
        self.total = 0
        self.truncated = False

    def write(self, data: bytes) -> None:
        """Append output."""
        with self._lock:
            if not self._sealed:
                self._take(self._redactor.feed(self._decoder.decode(data)))

    def close(self) -> None:
        """Flush the output that was held back."""
        with self._lock:
            self._take(self._redactor.feed(self._decoder.decode(b"", final=True)))
            self._take(self._redactor.close())

    def seal(self) -> None:
        """Ignore further output: the next step begins, and this log's digest is already recorded."""
        with self._lock:
            self._sealed = True

    @property
    def kept(self) -> bytes:
        """The log in its stored form."""
        with self._lock:
            if not self.truncated:
                return bytes(self._head + self._tail)
            head, tail = _whole_letters(self._head), _whole_letters(self._tail[-self._tail_limit :])
            left_out = self.total - len(head) - len(tail)
            # No newline before the tail, because the tail may begin in the middle of a line.
            return head + f"\n[... {left_out} bytes left out ...] ".encode() + tail

    @property
    def sha256(self) -> str:
        """The hexadecimal digest of the whole log, including the part that is left out."""
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
        """Break up workflow commands of GitHub's runner, even if they arrive in pieces.

        ``self._line`` summarizes the current line: empty while it has only white space, ``:`` after a first colon,
        otherwise ``x`` and up to two number signs.
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
        self.stream.add(data)
        fits = self._head_limit - len(self._head)
        self._head += data[:fits]
        self._tail += data[fits:] if fits > 0 else data
        excess = len(self._tail) - self._tail_limit
        self.truncated = self.truncated or excess > 0
        if excess > _SLACK:
            del self._tail[:excess]
