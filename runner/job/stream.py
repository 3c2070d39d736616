"""Queues a job's output for the branch: the output of its steps in order, in pieces with their positions.

All steps of a job share one stream, so a step's unsent output is sent before the first byte of the next step. Each
piece says how many bytes before it are missing. The pieces and the gaps add up to the job's whole output.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True)
class Piece:
    """Output for one commit: ``left_out`` bytes that will never be streamed, then ``data``."""

    data: bytes = b""
    left_out: int = 0


class LogStream:
    """Output that is not on the branch yet. Safe for one writer and one reader thread.

    At most CHUNK_BYTES wait. If more arrives, it is dropped until the waiting bytes have been sent.
    """

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._gap_before = 0
        self._gap_after = 0
        self._lock = threading.Lock()

    @property
    def waits(self) -> bool:
        """Return whether there is something to send."""
        return bool(self._waiting)

    def add(self, data: bytes) -> None:
        """Append output, which must consist of whole UTF-8 characters."""
        with self._lock:
            room = 0 if self._gap_after else CHUNK_BYTES - len(self._waiting)
            fits = data if len(data) <= room else whole_letters(data[:room])
            self._waiting += fits
            self._gap_after += len(data) - len(fits)

    def piece(self) -> Piece:
        """Return the next piece to send. It stays queued until ``sent`` is called."""
        with self._lock:
            return Piece(bytes(self._waiting), self._gap_before)

    def sent(self, piece: Piece) -> None:
        """Remove a piece that is on the branch now."""
        if not piece.data:
            return
        with self._lock:
            del self._waiting[: len(piece.data)]
            self._gap_before = 0
            if not self._waiting:
                self._gap_before, self._gap_after = self._gap_after, 0


def whole_letters(data: bytes | bytearray) -> bytes:
    """Remove incomplete UTF-8 characters at the ends of a truncated text."""
    return data.decode("utf-8", "ignore").encode()
