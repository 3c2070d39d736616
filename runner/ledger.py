"""What this runner has seen, kept through crashes: nonces against replay, and answers that are not yet published."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import InfrastructureError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (
    request  TEXT PRIMARY KEY,
    branch   TEXT NOT NULL,
    nonce    TEXT NOT NULL UNIQUE,
    preset   TEXT NOT NULL,
    state    TEXT NOT NULL,
    claims   INTEGER NOT NULL DEFAULT 0,
    answer   TEXT,
    expect   TEXT,
    seen_at  TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX IF NOT EXISTS unpublished ON requests (answer) WHERE answer IS NOT NULL;
CREATE TABLE IF NOT EXISTS approvals (
    request  TEXT PRIMARY KEY,
    by       TEXT NOT NULL,
    at       TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
);
"""


@dataclass(frozen=True)
class Seen:
    """What is known about a nonce."""

    request: str
    branch: str
    state: str


@dataclass(frozen=True)
class Pending:
    """An answer that exists as a commit and is not on the bus yet."""

    request: str
    branch: str
    answer: str
    expect: str


class Ledger:
    """A small SQLite file. Every change is on disk before the call returns."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = sqlite3.connect(path, isolation_level=None, timeout=30)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
        except sqlite3.Error as error:
            fix = (
                "Move the file away to begin a new one; requests that were answered stay answered on the bus."
            )
            raise InfrastructureError(f"cannot use the ledger {path}: {error}", fix=fix) from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Cursor]:
        with closing(self._db.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
            except BaseException:
                cursor.execute("ROLLBACK")
                raise
            cursor.execute("COMMIT")

    def seen(self, nonce: str) -> Seen | None:
        """Return what a nonce was first seen on, or None."""
        rows = self._db.execute("SELECT request, branch, state FROM requests WHERE nonce = ?", (nonce,))
        return next((Seen(*row) for row in rows), None)

    def begin(self, request: str, *, branch: str, nonce: str, preset: str) -> None:
        """Note that a request is about to be taken, before it is: what is noted twice is the same request."""
        with self._write() as cursor:
            cursor.execute(
                "INSERT INTO requests (request, branch, nonce, preset, state, claims) VALUES (?, ?, ?, ?, 'taken', 1)"
                " ON CONFLICT (request) DO UPDATE SET claims = claims + 1, state = 'taken'",
                (request, branch, nonce, preset),
            )

    def answered(self, request: str, state: str, answer: str, expect: str) -> None:
        """Note an answer before it is pushed, so that it outlives this process."""
        with self._write() as cursor:
            cursor.execute(
                "UPDATE requests SET state = ?, answer = ?, expect = ? WHERE request = ?",
                (state, answer, expect, request),
            )

    def settled(self, request: str, state: str | None = None) -> None:
        """Note that nothing is left to publish: the answer is on the bus, or another runner's is."""
        with self._write() as cursor:
            cursor.execute(
                "UPDATE requests SET answer = NULL, expect = NULL, state = COALESCE(?, state) WHERE request = ?",
                (state, request),
            )

    def pending(self) -> list[Pending]:
        """Return the answers that are not on the bus yet."""
        rows = self._db.execute(
            "SELECT request, branch, answer, expect FROM requests WHERE answer IS NOT NULL"
        )
        return [Pending(*row) for row in rows]

    def approve(self, request: str, by: str) -> None:
        """Note that this host's operator lets one commit run."""
        with self._write() as cursor:
            cursor.execute("INSERT OR REPLACE INTO approvals (request, by) VALUES (?, ?)", (request, by))

    def withdraw(self, request: str) -> bool:
        """Take an approval back. Says whether there was one."""
        with self._write() as cursor:
            cursor.execute("DELETE FROM approvals WHERE request = ?", (request,))
            return cursor.rowcount > 0

    def approval_of(self, request: str) -> str | None:
        """Return who approved a commit, or None."""
        row = self._db.execute("SELECT by FROM approvals WHERE request = ?", (request,)).fetchone()
        return str(row[0]) if row else None
