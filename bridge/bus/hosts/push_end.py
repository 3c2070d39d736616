"""Decides how a push ended: nothing was sent, the server refused it, the server accepted it, or nobody knows.

Git reports to a file when it begins to send, which is after the server's listing has come. Without that report, nothing
was sent. After it, only a status of the server or a failure that precludes acceptance tells how the push ended.
"""

import re
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bridge.errors import GitError
from bridge.system import git_output
from bridge.system.git import Git

# How much of git's report is read. Git begins to send within its first lines.
_REPORT_BYTES = 1 << 20
_STARTED = b'"event":"start"'
_SENDING = re.compile(rb'"event":"region_enter"[^\n]*"category":"transport_push","label":"push_refs"')

# Git's flags for a reference that now has the pushed value.
_MOVED = frozenset(" +*-=")
# The push failed over HTTP after git had begun to send: there was no connection for the pack, ...
_NOT_CONNECTED = re.compile(
    r"^error: RPC failed; curl (?:(?:5|6|7|35|58|60|77|97) "
    r"|28 (?:Failed to connect|Connection timed out|Connection timeout|Resolving timed out|SSL connection timeout))",
    re.MULTILINE,
)
# ... or the server answered with a status that refuses. (408 and 499 mean that the connection broke.)
_SAYS_NO = re.compile(
    r"^error: RPC failed; (?:HTTP (?!408|499)4\d\d\b|.*returned error: (?!408|499)4\d\d\b)"
    r"|^fatal: (?:could not read (?:Username|Password) for |Authentication failed for )",
    re.MULTILINE,
)
# Git itself found, after the listing, that it cannot push from this clone or to this server.
_UNFIT = re.compile(
    r"^(?:fatal|error): (?:the receiving end does not support|mismatched algorithms|no DAV locking support on"
    r"|Cannot access URL)",
    re.MULTILINE | re.IGNORECASE,
)
# Somebody else pushed between the server's first and last look at the branch.
_OVERTAKEN = re.compile(r"cannot lock ref '[^']+': (?:is at|reference already exists|unable to resolve)")


class PushEnd(StrEnum):
    """How a push of one reference ended."""

    NOT_SENT = "not sent"
    REFUSED = "refused"
    ACCEPTED = "accepted"
    UNKNOWN = "unknown"


@dataclass
class SendingReport:
    """What git reported about a push."""

    file: Path | None

    @property
    def has_begun(self) -> bool:
        """Whether git may have begun to send. Without a report, it may have."""
        with suppress(OSError):
            if self.file:
                with self.file.open("rb") as opened:
                    report = opened.read(_REPORT_BYTES)
                return _STARTED not in report or _SENDING.search(report) is not None
        return True


@contextmanager
def reporting(git: Git) -> Iterator[tuple[Git, SendingReport]]:
    """Yield a git that reports when it begins to send, and the file with the report, which is deleted afterwards."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="kakeya-push-"))
    except OSError:
        yield git, SendingReport(None)
        return
    try:
        file = folder / "report"
        yield git.with_env(GIT_TRACE2_EVENT=str(file), GIT_TRACE2_EVENT_NESTING="9"), SendingReport(file)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_overtaken(output: str) -> bool:
    """Return whether a server says that somebody else pushed to the branch during the push."""
    return _OVERTAKEN.search(output) is not None


class PushError(GitError):
    """A push failed for at least one of its references."""

    def __init__(self, error: GitError, refs: Collection[str], *, has_begun: bool) -> None:
        super().__init__(error.argv, error.returncode, error.stdout, error.stderr, message=error.own_message)
        self.fix, self.code = error.fix, error.code
        self._statuses = git_output.push_statuses(error.stdout)
        self._ends = {ref: self._classify(ref, has_begun=has_begun) for ref in refs}

    def end(self, ref: str) -> PushEnd:
        """Return how the push of a reference ended."""
        return self._ends[ref]

    def is_overtaken(self, ref: str) -> bool:
        """Return whether the reference was not at the expected commit, before the push or during it."""
        _, reason = self._statuses.get(ref, ("", ""))
        return reason.startswith("[rejected]") or is_overtaken(self.output())

    def _classify(self, ref: str, *, has_begun: bool) -> PushEnd:
        flag, reason = self._statuses.get(ref, ("", ""))
        if flag and flag in _MOVED:
            return PushEnd.ACCEPTED
        if reason.startswith("[remote rejected]"):
            return PushEnd.REFUSED
        output = self.output()
        is_kept_back = reason and not reason.startswith("[remote failure]")
        if not has_begun or is_kept_back or _NOT_CONNECTED.search(output) or _UNFIT.search(output):
            return PushEnd.NOT_SENT
        return PushEnd.REFUSED if _SAYS_NO.search(output) else PushEnd.UNKNOWN
