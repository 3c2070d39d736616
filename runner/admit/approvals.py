"""The operator's approvals: an append-only file beside the ledger.

They are not in the ledger, because a damaged ledger is rebuilt from the bus, and the bus does not know what the
operator decided. Each line is one decision about one commit on one branch; the last such line counts. The branch is
named because anyone can push a copy of the commit to another branch, and the copy must not use up the approval.
A line that cannot be read may have been a withdrawal, so all lines before it are ignored.
"""

import errno
import fcntl
import json
import os
from datetime import UTC, datetime
from pathlib import Path

from bridge.manifest import format_time

NAME = "approvals.jsonl"


class Approvals:
    """The approvals of one state folder. Each call reads the file again; several processes may append to it."""

    def __init__(self, state_folder: Path) -> None:
        self._path = state_folder / NAME

    def approve(self, branch: str, request: str, by: str) -> None:
        """Approve one request commit on one branch. The approval is on disk when the call returns."""
        self._add({"branch": branch, "request": request, "by": by})

    def withdraw(self, branch: str, request: str) -> bool:
        """Withdraw an approval. Returns whether there was one."""
        if there := (branch, request) in self.all():
            self._add({"branch": branch, "request": request, "by": None})
        return there

    def of(self, branch: str, request: str) -> str | None:
        """Return who approved a commit on a branch, or None."""
        return self.all().get((branch, request))

    def all(self) -> dict[tuple[str, str], str]:
        """Return who approved each request, by branch and request commit."""
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return {}
        counts: dict[tuple[str, str], str] = {}
        for line in lines:
            try:
                record = json.loads(line)
                key, by = (str(record["branch"]), str(record["request"])), record["by"]
            except (ValueError, KeyError, TypeError):
                counts.clear()
                continue
            counts.pop(key, None)
            if by is not None:
                counts[key] = str(by)
        return counts

    def branches_of(self, request: str) -> list[str]:
        """Return the branches on which a commit is approved."""
        return [branch for branch, commit in self.all() if commit == request]

    def _add(self, record: dict[str, str | None]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({**record, "at": format_time(datetime.now(UTC))}).encode() + b"\n"
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with os.fdopen(os.open(self._path, flags, 0o600), "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file.fileno()).st_size
            # Start a new line, so that a line that a power cut truncated does not become part of this one.
            whole = size == 0 or os.pread(file.fileno(), 1, size - 1) == b"\n"
            line = line if whole else b"\n" + line
            if os.write(file.fileno(), line) < len(line):
                os.ftruncate(file.fileno(), size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
            os.fsync(file.fileno())
