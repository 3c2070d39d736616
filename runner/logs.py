"""One job's output, made harmless and bounded: what is kept, what is streamed, and a digest over all of it."""

from __future__ import annotations

import base64
import codecs
import hashlib
import io
import json
import re
import threading
from collections import deque
from collections.abc import Iterable
from urllib.parse import quote

REDACTED = "[redacted]"
CHUNK_BYTES = 256 * 1024
# Shorter pieces of a secret would be found in harmless text.
_SHORTEST_FORM = 6

# Terminal control (ESC, CSI and the rest of C0 and C1) and marks that reorder text become visible stand-ins.
_TABLE = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
_TABLE |= dict.fromkeys(
    [*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029], "\ufffd"
)

# GitHub's runner takes lines that begin with `::` (after white space) or hold `##[` as commands to itself.
_COMMAND = re.compile(r"(?m)^([^\S\n]*:)(?=:)")
_MARK = re.compile(r"##(?=\[)")


def forms_of(secret: str) -> set[str]:
    """Return how a secret may appear: as it is, in a URL, in JSON, and in base64 wherever it stands in it."""
    forms = {quote(secret, safe=""), json.dumps(secret)[1:-1]}
    for before in range(3):
        padded = bytes(before) + secret.encode()
        # Six bits a letter: those that also hold bits of the neighbours are left out.
        first, end = -(-before * 8 // 6), len(padded) * 8 // 6
        forms |= {
            base64.b64encode(padded).decode()[first:end],
            base64.urlsafe_b64encode(padded).decode()[first:end],
        }
    return {secret} | {form for form in forms if len(form) >= _SHORTEST_FORM}


class LogSink:
    """Takes a program's output as bytes and gives out text. Safe for one writer and one reader in two threads.

    At most `limit` bytes are kept: a third from the beginning, the rest from the end. `secrets` never appear,
    also where they arrive in two pieces.
    """

    def __init__(self, limit: int, secrets: Iterable[str] = ()) -> None:
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
        # The longest first, so that of two secrets with one beginning the whole is found.
        forms = {form for secret in secrets if secret for form in forms_of(secret)}
        self._secrets = sorted(forms, key=len, reverse=True)
        self._secret = re.compile("|".join(map(re.escape, self._secrets)) or r"(?!)")
        self._pending = ""
        self._line = ""
        self._head = bytearray()
        self._head_limit = limit // 3
        self._tail: deque[bytes] = deque()
        self._tail_limit = limit - self._head_limit
        self._tail_bytes = 0
        self._digest = hashlib.sha256()
        self._stream = bytearray()
        self._unstreamed = 0
        self._lock = threading.Lock()
        self.total = 0
        self.truncated = False

    def write(self, data: bytes) -> None:
        """Take some more output."""
        with self._lock:
            self._pending += self._decoder.decode(data)
            self._flush()

    def close(self) -> None:
        """Take what was held back: nothing more will come."""
        with self._lock:
            self._pending += self._decoder.decode(b"", final=True)
            self._flush(final=True)

    def take_chunk(self) -> bytes:
        """Return what is new since the last call; past CHUNK_BYTES a line says how much was left out."""
        with self._lock:
            chunk = bytes(self._stream)
            if self._unstreamed:
                whole = _whole_letters(chunk)
                self._unstreamed += len(chunk) - len(whole)
                chunk = (
                    whole
                    + f"\n[{self._unstreamed} bytes not streamed: the answer will hold the log]\n".encode()
                )
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
            tail = b"".join(self._tail)
            if not self.truncated:
                return bytes(self._head) + tail
            head, tail = _whole_letters(self._head), _whole_letters(tail[-self._tail_limit :])
            left_out = self.total - len(head) - len(tail)
            # No new line before the tail: what begins it was not at the beginning of a line.
            return head + f"\n[... {left_out} bytes left out ...] ".encode() + tail

    @property
    def sha256(self) -> str:
        """The digest of the whole log, in hexadecimal, what was left out included."""
        return self._digest.hexdigest()

    def _flush(self, *, final: bool = False) -> None:
        """Store what is pending, its secrets hidden, up to where another one may have begun."""
        text, done, at = self._pending, "", 0
        while True:
            until = len(text) if final else self._begun_secret(text, at)
            found = self._secret.search(text, at)
            if not found or found.start() >= until:
                break
            done += text[at : found.start()] + REDACTED
            at = found.end()
        done += text[at:until]
        self._pending = text[until:]
        if done:
            self._store(self._harmless(done.translate(_TABLE)).encode("utf-8", "replace"))

    def _begun_secret(self, text: str, start: int) -> int:
        """Return where, from `start` on, the end of the text may be the beginning of a secret."""
        held = 0
        for secret in self._secrets:
            longest = min(len(secret) - 1, len(text) - start)
            held = max(held, next((n for n in range(longest, 0, -1) if text.endswith(secret[:n])), 0))
        return len(text) - held

    def _harmless(self, text: str) -> str:
        """Break up what GitHub's runner would take for a command, also where it arrives in pieces.

        `self._line` stands for the line that has begun: empty while it is only white space, `:` after a first
        colon, else `x` and up to two number signs.
        """
        whole = _MARK.sub("## ", _COMMAND.sub(r"\1 ", self._line + text))
        safe = whole[len(self._line) :]
        begun = whole[whole.rfind("\n") + 1 :].lstrip()
        if begun not in ("", ":"):
            begun = "x" + begun[-2:][len(begun[-2:].rstrip("#")) :]
        self._line = begun
        return safe

    def _store(self, data: bytes) -> None:
        self._digest.update(data)
        self.total += len(data)
        room = max(0, CHUNK_BYTES - len(self._stream))
        self._stream += data[:room]
        self._unstreamed += max(0, len(data) - room)
        fits = self._head_limit - len(self._head)
        self._head += data[:fits]
        rest = data[fits:] if fits > 0 else data
        if rest:
            self._tail.append(rest)
            self._tail_bytes += len(rest)
        while self._tail and self._tail_bytes - len(self._tail[0]) >= self._tail_limit:
            self._tail_bytes -= len(self._tail.popleft())
            self.truncated = True
        self.truncated = self.truncated or self._tail_bytes > self._tail_limit


def _whole_letters(data: bytes | bytearray) -> bytes:
    """Return UTF-8 without the halves of letters at its ends."""
    return data.decode("utf-8", "ignore").encode()
