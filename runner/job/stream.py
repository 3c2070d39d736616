"""A job's output on its way to the branch: the steps one after another, in pieces that say where they belong.

One stream serves all steps of a job, so whatever a step leaves unsent goes out before the first byte of the next one.
Each piece says how many bytes before it are missing. The pieces and these gaps, added up, are the job's whole output.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True)
class Piece:
    """Output for one commit: `left_out` bytes that will never be streamed, then `data`."""

    data: bytes = b""
    left_out: int = 0


class LogStream:
    """Output that is not on the branch yet. Safe for one writer and one reader in two threads.

    At most CHUNK_BYTES wait. Once more comes, everything is left out until what waits has been sent.
    """

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._gap_before = 0
        self._gap_after = 0
        self._lock = threading.Lock()

    @property
    def waits(self) -> bool:
        """Say whether there is something to send."""
        return bool(self._waiting)

    def add(self, data: bytes) -> None:
        """Take more output: whole letters of UTF-8."""
        with self._lock:
            room = 0 if self._gap_after else CHUNK_BYTES - len(self._waiting)
            fits = data if len(data) <= room else whole_letters(data[:room])
            self._waiting += fits
            self._gap_after += len(data) - len(fits)

    def piece(self) -> Piece:
        """Return what is to be sent next. It stays until `sent` says that it arrived."""
        with self._lock:
            return Piece(bytes(self._waiting), self._gap_before)

    def sent(self, piece: Piece) -> None:
        """Note that a piece is on the branch."""
        if not piece.data:
            return
        with self._lock:
            del self._waiting[: len(piece.data)]
            self._gap_before = 0
            if not self._waiting:
                self._gap_before, self._gap_after = self._gap_after, 0


def whole_letters(data: bytes | bytearray) -> bytes:
    """Return what was cut without the half of a letter that may be left at an end."""
    return data.decode("utf-8", "ignore").encode()
