"""The ledger, a database that survives crashes: the branches seen (against replays) and unpublished answers."""

import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import InfrastructureError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS branches (
    branch    TEXT PRIMARY KEY,
    request   TEXT NOT NULL,
    nonce     TEXT NOT NULL,  -- this and the next are no longer used, and stay empty
    preset    TEXT NOT NULL,
    state     TEXT NOT NULL,
    answer    TEXT,
    expect    TEXT,
    published TEXT
);
CREATE INDEX IF NOT EXISTS waiting ON branches (answer) WHERE answer IS NOT NULL;
CREATE TABLE IF NOT EXISTS salts (
    salt   TEXT PRIMARY KEY,
    branch TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS of_branch ON salts (branch);
CREATE TABLE IF NOT EXISTS answers (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order in which they were given
    branch TEXT NOT NULL UNIQUE,
    kind   TEXT NOT NULL,
    at     REAL  -- by this machine's clock; empty if an earlier version gave the answer
);
CREATE TABLE IF NOT EXISTS turns (
    requester TEXT NOT NULL,
    at        REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS attempts (
    tip   TEXT PRIMARY KEY,
    times INTEGER NOT NULL
);
"""
_FROM_EARLIER = """
INSERT INTO answers (branch, kind)
SELECT branch, CASE WHEN state IN ('refused', 'cancelled', 'lost') THEN 'not_run' ELSE 'ran' END
FROM branches WHERE published IS NOT NULL ORDER BY rowid
"""
_KEEP_TURNS_S = 86_400.0
_FORGET_S = 3600.0

# The kinds of answers on the bus: given by this runner after a job, given by it without running anything, or
# given by somebody else (another runner or a forger).
RAN, NOT_RUN, FOREIGN = "ran", "not_run", "foreign"

# The state of a request whose branch is gone or was taken by another runner, so nothing of this one is on the bus.
FENCED = "fenced"

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@dataclass(frozen=True)
class LedgerEntry:
    """The ledger's entry for a branch: its request, its state, and the pushed answer."""

    request: str
    state: str
    published: str | None


@dataclass(frozen=True)
class Pending:
    """An answer that is committed here but not on the bus yet."""

    request: str
    branch: str
    answer: str
    expect: str


@dataclass(frozen=True)
class AnswerOnBus:
    """What this runner itself knows about an answer on the bus."""

    branch: str
    kind: str
    # When this runner gave the answer, or first saw a foreign one, by this machine's clock.
    at: float


class Ledger:
    """A small SQLite file. Each change is on disk before the call returns."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        try:
            self._db = sqlite3.connect(path, isolation_level="IMMEDIATE", timeout=30)
        except sqlite3.Error as error:
            raise InfrastructureError(f"cannot open the ledger {path}: {error}") from error
        try:
            fault = self._prepare()
            code = "damaged" if fault else None
        except sqlite3.Error as error:
            fault = str(error)
            code = "damaged" if getattr(error, "sqlite_errorcode", None) in _DAMAGE else None
        if fault:
            self._db.close()
            raise InfrastructureError(f"cannot use the ledger {path}: {fault}", code=code)

    def _prepare(self) -> str:
        """Create the tables and check the file's integrity. Returns what is wrong, or an empty string."""
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        is_new = not self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'answers'").fetchone()
        self._db.executescript(_SCHEMA)
        if is_new:
            # Earlier versions recorded which answers they gave, but not when.
            with self._db:
                self._db.execute(_FROM_EARLIER)
        verdict = str(self._db.execute("PRAGMA quick_check(1)").fetchone()[0])
        return "" if verdict == "ok" else verdict

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @property
    def is_filled(self) -> bool:
        """Return whether the ledger has been filled from the bus. False for a new or emptied file."""
        return bool(self._db.execute("PRAGMA user_version").fetchone()[0])

    def mark_filled(self) -> None:
        """Record that the ledger has been filled from the bus."""
        self._db.execute("PRAGMA user_version = 1")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit the executed statements. Raise an InfrastructureError if they cannot be written, as on a full disk."""
        try:
            with self._db:
                yield self._db
        except sqlite3.Error as error:
            raise InfrastructureError(f"cannot write to the ledger {self._path}: {error}") from error

    def entry(self, branch: str) -> LedgerEntry | None:
        """Return what was first seen on a branch, or None. The branch name contains the nonce and the preset."""
        rows = self._db.execute("SELECT request, state, published FROM branches WHERE branch = ?", (branch,))
        return next((LedgerEntry(*row) for row in rows), None)

    def begin(self, request: str, *, branch: str) -> None:
        """Record that a request is about to be claimed, perhaps again."""
        with self.transaction() as db:
            db.execute(
                "INSERT INTO branches (request, branch, nonce, preset, state) VALUES (?, ?, '', '', 'taken')"
                " ON CONFLICT (branch) DO UPDATE SET state = 'taken'",
                (request, branch),
            )

    def record_answer(self, *, branch: str, state: str, answer: str, expect: str) -> bool:
        """Record an answer before it is pushed, so that it survives a crash. Returns whether the branch is known."""
        with self.transaction() as db:
            update = db.execute(
                "UPDATE branches SET state = ?, answer = ?, expect = ? WHERE branch = ?",
                (state, answer, expect, branch),
            )
            return update.rowcount > 0

    def restore(self, request: str, *, branch: str, state: str) -> None:
        """Record a request that was seen earlier. An existing entry is not changed."""
        with self.transaction() as db:
            db.execute(
                "INSERT OR IGNORE INTO branches (request, branch, nonce, preset, state)"
                " VALUES (?, ?, '', '', ?)",
                (request, branch, state),
            )

    def record_write(self, *, branch: str, salt: str) -> None:
        """Record a state by its salt before it is pushed, so that ``wrote`` recognizes it on the bus."""
        with self.transaction() as db:
            db.execute("INSERT INTO salts (salt, branch) VALUES (?, ?)", (salt, branch))

    def has_written(self, salt: str) -> bool:
        """Return whether this runner made the state with this salt. Only states of unfinished requests are known."""
        return self._db.execute("SELECT 1 FROM salts WHERE salt = ?", (salt,)).fetchone() is not None

    def mark_settled(self, *, branch: str, state: str | None = None, published: str | None = None) -> None:
        """Record that nothing is left to publish: this runner's answer (``published``) or another one is on the bus."""
        with self.transaction() as db:
            db.execute(
                "UPDATE branches SET answer = NULL, expect = NULL, state = COALESCE(?, state),"
                " published = COALESCE(?, published) WHERE branch = ?",
                (state, published, branch),
            )
            db.execute("DELETE FROM salts WHERE branch = ?", (branch,))

    def forget(self, is_old: Callable[[str], bool]) -> None:
        """Remove the branches, given by their names, that are too old to be used again."""
        with self.transaction() as db:
            gone = [row for row in db.execute("SELECT branch FROM branches").fetchall() if is_old(row[0])]
            db.executemany("DELETE FROM branches WHERE branch = ?", gone)
            db.executemany("DELETE FROM answers WHERE branch = ?", gone)

    @contextmanager
    def attempting(self, tips: Collection[str]) -> Iterator[None]:
        """Handle commits from the bus in this block. The attempt counts first: handling them may kill this process."""
        if not tips:
            yield
            return
        with self.transaction() as db:
            db.executemany(
                "INSERT INTO attempts (tip, times) VALUES (?, 1)"
                " ON CONFLICT (tip) DO UPDATE SET times = times + 1",
                [(tip,) for tip in tips],
            )
        try:
            yield
        finally:
            with self.transaction() as db:
                db.executemany("DELETE FROM attempts WHERE tip = ?", [(tip,) for tip in tips])

    def attempts(self) -> dict[str, int]:
        """Return how many unfinished attempts each commit has: each is a crash or is going on now."""
        return {str(tip): int(times) for tip, times in self._db.execute("SELECT tip, times FROM attempts")}

    def unsent_answers(self) -> list[Pending]:
        """Return the answers that are not on the bus yet."""
        rows = self._db.execute(
            "SELECT request, branch, answer, expect FROM branches WHERE answer IS NOT NULL"
        )
        return [Pending(*row) for row in rows]

    def note_given(self, branch: str, *, ran: bool, at: float) -> None:
        """Record that this runner gave an answer. A second answer on the same branch keeps the first one's place."""
        with self.transaction() as db:
            db.execute(
                "INSERT INTO answers (branch, kind, at) VALUES (?, ?, ?)"
                " ON CONFLICT (branch) DO UPDATE SET kind = excluded.kind, at = excluded.at",
                (branch, RAN if ran else NOT_RUN, at),
            )

    def answers_on_bus(
        self, branches: Collection[str], listed: Collection[str], now: float
    ) -> list[AnswerOnBus]:
        """Return what is known about the answered ``branches``, in the order in which this runner gave or saw them.

        Answers that are new to this runner count as foreign, and as of ``now``; so does a time that ``now`` has not
        reached, because the clock was wrong then. What is not among the ``listed`` branches is forgotten after an hour.
        """
        with self.transaction() as db:
            db.executemany(
                "INSERT OR IGNORE INTO answers (branch, kind) VALUES (?, ?)",
                [(branch, FOREIGN) for branch in sorted(branches)],
            )
            rows = db.execute("SELECT branch, kind, at FROM answers ORDER BY number").fetchall()
            undated = [(now, branch) for branch, _, at in rows if at is None or at > now]
            db.executemany("UPDATE answers SET at = ? WHERE branch = ?", undated)
            gone = [
                (branch,) for branch, _, at in rows if branch not in listed and at and at < now - _FORGET_S
            ]
            db.executemany("DELETE FROM answers WHERE branch = ?", gone)
        known = {branch for _, branch in undated}
        return [
            AnswerOnBus(branch, kind, now if branch in known else at)
            for branch, kind, at in rows
            if branch in branches
        ]

    def record_start(self, requester: str, at: float) -> None:
        """Record that a requester had a turn."""
        with self.transaction() as db:
            # Turns with a time in the future were recorded before the clock was set back.
            db.execute("DELETE FROM turns WHERE at < ? OR at > ?", (at - _KEEP_TURNS_S, at))
            db.execute("INSERT INTO turns (requester, at) VALUES (?, ?)", (requester, at))

    def taken_between(self, begin: float, end: float) -> dict[str, int]:
        """Return how many turns each requester had between two moments."""
        rows = self._db.execute(
            "SELECT requester, COUNT(*) FROM turns WHERE at BETWEEN ? AND ? GROUP BY requester", (begin, end)
        )
        return {str(requester): int(count) for requester, count in rows}
