"""The tips of the request branches in the runner's store: references below ``refs/bus/``, all in one file.

Git would write one file for each new reference. For ten thousand of them that takes seconds, and it fails for names
that are too long below the store's path. So these references are written into git's ``packed-refs`` file at once.
Meanwhile the state folder is locked, and git's own lock file keeps git processes away.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from bridge.bus import branch_names
from bridge.errors import InfrastructureError
from bridge.system import git_output
from bridge.system.git import Git

HEADS = "refs/bus/"
# The archive keeps a branch whose name conflicts with an earlier one here, below its commit id.
APART = "refs/apart/"
_HEADER = b"# pack-refs with: peeled fully-peeled sorted \n"


class PackedRefs:
    """The references below ``refs/bus/`` of a bare repository."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._file = git.directory / "packed-refs"
        self.at = {name.removeprefix(HEADS): oid for name, oid in git.refs(HEADS).items()}

    def set(self, changes: Mapping[str, str | None]) -> None:
        """Set branches to commits; None removes a branch. If it raises InfrastructureError, nothing has changed."""
        changes = {branch: oid for branch, oid in changes.items() if self.at.get(branch) != oid}
        if not changes:
            return
        if unsafe := [branch for branch in changes if not branch_names.is_safe(branch)]:
            raise InfrastructureError(f"{unsafe[0]!a} cannot be a reference of the store")
        self._write(changes)
        self.at = {branch: oid for branch, oid in {**self.at, **changes}.items() if oid is not None}

    def _write(self, changes: Mapping[str, str | None]) -> None:
        lock = self._file.with_name("packed-refs.lock")
        try:
            with os.fdopen(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
                try:
                    file.write(_HEADER + b"".join(_merged(self._file, changes)))
                    file.flush()
                    os.fsync(file.fileno())
                    lock.replace(self._file)
                except BaseException:
                    lock.unlink(missing_ok=True)
                    raise
        except OSError as error:
            raise InfrastructureError(f"cannot write {self._file}: {error.strerror}", code="store") from error


def _merged(file: Path, changes: Mapping[str, str | None]) -> list[bytes]:
    """Return the lines of the file after these changes, sorted by name as git requires."""
    now = {
        f"{HEADS}{branch}".encode(): oid and f"{oid} {HEADS}{branch}\n".encode()
        for branch, oid in changes.items()
    }
    before = dict(git_output.packed_refs(file.read_bytes() if file.exists() else b""))
    return [lines for _, lines in sorted((before | now).items()) if lines]
