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
CREATE TABLE IF NOT EXISTS turns (
    requester TEXT NOT NULL,
    at        REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS states (
    salt     TEXT PRIMARY KEY,
    request  TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS of_request ON states (request);
"""
_KEEP_TURNS_S = 86_400.0

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


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
        self._path = path
        self._db = sqlite3.connect(path, isolation_level=None, timeout=30)
        try:
            found = self._prepare()
            code = "damaged" if found else None
        except sqlite3.Error as error:
            found = str(error)
            code = "damaged" if getattr(error, "sqlite_errorcode", None) in _DAMAGE else None
        if found:
            self._db.close()
            raise InfrastructureError(f"cannot use the ledger {path}: {found}", code=code)

    def _prepare(self) -> str:
        """Set the file up and look through it. Returns what is wrong with it, nothing where it is sound."""
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(_SCHEMA)
        said = str(self._db.execute("PRAGMA quick_check(1)").fetchone()[0])
        return "" if said == "ok" else said

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @property
    def is_filled(self) -> bool:
        """Say whether it holds what was known before it was made. A file that is new, or was emptied, does not."""
        return bool(self._db.execute("PRAGMA user_version").fetchone()[0])

    def filled(self) -> None:
        """Note that it does."""
        self._db.execute("PRAGMA user_version = 1")

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Cursor]:
        """Make one change. Raises InfrastructureError if it cannot be written, as on a full disk."""
        try:
            with closing(self._db.cursor()) as cursor:
                cursor.execute("BEGIN IMMEDIATE")
                try:
                    yield cursor
                    cursor.execute("COMMIT")
                except BaseException:
                    # SQLite ends a transaction by itself when the disk is full.
                    if self._db.in_transaction:
                        cursor.execute("ROLLBACK")
                    raise
        except sqlite3.Error as error:
            raise InfrastructureError(f"cannot write to the ledger {self._path}: {error}") from error

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

    def answered(self, request: str, state: str, answer: str, expect: str) -> bool:
        """Note an answer before it is pushed, so that it outlives this process. Says whether the request is known."""
        with self._write() as cursor:
            cursor.execute(
                "UPDATE requests SET state = ?, answer = ?, expect = ? WHERE request = ?",
                (state, answer, expect, request),
            )
            return cursor.rowcount > 0

    def restore(self, request: str, *, branch: str, nonce: str, preset: str, state: str) -> None:
        """Note a request that was seen at some earlier time. What is known already stays as it is."""
        with self._write() as cursor:
            cursor.execute(
                "INSERT OR IGNORE INTO requests (request, branch, nonce, preset, state, claims)"
                " VALUES (?, ?, ?, ?, ?, 1)",
                (request, branch, nonce, preset, state),
            )

    def writes(self, request: str, salt: str) -> None:
        """Note a state by its salt before it is pushed, to know it again on the bus."""
        with self._write() as cursor:
            cursor.execute("INSERT INTO states (salt, request) VALUES (?, ?)", (salt, request))

    def wrote(self, salt: str) -> bool:
        """Say whether a state of a request that is not settled was made by this runner."""
        return self._db.execute("SELECT 1 FROM states WHERE salt = ?", (salt,)).fetchone() is not None

    def settled(self, request: str, state: str | None = None) -> None:
        """Note that nothing is left to publish: the answer is on the bus, or another runner's is."""
        with self._write() as cursor:
            cursor.execute(
                "UPDATE requests SET answer = NULL, expect = NULL, state = COALESCE(?, state) WHERE request = ?",
                (state, request),
            )
            cursor.execute("DELETE FROM states WHERE request = ?", (request,))

    def pending(self) -> list[Pending]:
        """Return the answers that are not on the bus yet."""
        rows = self._db.execute(
            "SELECT request, branch, answer, expect FROM requests WHERE answer IS NOT NULL"
        )
        return [Pending(*row) for row in rows]

    def took(self, requester: str, at: float) -> None:
        """Note that a requester's request had its turn."""
        with self._write() as cursor:
            # Those of the future are of a clock that was set back since.
            cursor.execute("DELETE FROM turns WHERE at < ? OR at > ?", (at - _KEEP_TURNS_S, at))
            cursor.execute("INSERT INTO turns (requester, at) VALUES (?, ?)", (requester, at))

    def taken_between(self, begin: float, end: float) -> dict[str, int]:
        """Return how many turns each requester had between two moments."""
        rows = self._db.execute(
            "SELECT requester, COUNT(*) FROM turns WHERE at BETWEEN ? AND ? GROUP BY requester", (begin, end)
        )
        return {str(requester): int(count) for requester, count in rows}
