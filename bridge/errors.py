"""Errors that the user can act on.

KakeyaError
├── UsageError              the call itself is wrong; nothing was sent
│   ├── ManifestError       a request manifest is not valid
│   ├── PresetError         a preset file, or the parameters given for a preset, are not valid
│   └── PolicyError         the runner's host-local policy is missing or not valid
├── InfrastructureError     worth a retry: the network, the bus, the disk
│   ├── ProcessError        another program failed
│   │   └── GitError        that program was git
│   └── WaitTimeout         no answer in the time given
├── RefusedError            a runner, or the bus, said no
└── VerificationError       an answer does not hold what it says
"""

from __future__ import annotations

import re
from enum import IntEnum

from bridge import clean


class ExitCode(IntEnum):
    """The one table of exit codes, for every command of every program here."""

    SUCCEEDED = 0
    FAILED = 1
    USAGE = 2
    INFRASTRUCTURE = 3
    REFUSED = 4
    GATE_REJECTED = 5
    CANCELLED = 6
    BUG = 70
    TIMED_OUT = 124
    INTERRUPTED = 130


# The meaning of each exit code, for all documents that list them.
EXIT_MEANINGS = {
    ExitCode.SUCCEEDED: "succeeded",
    ExitCode.FAILED: "the job failed, or a check failed",
    ExitCode.USAGE: "usage error; nothing was sent",
    ExitCode.INFRASTRUCTURE: "infrastructure problem, retry later: the remote, the disk, or no runner in time",
    ExitCode.REFUSED: "the request was refused; the answer says why",
    ExitCode.GATE_REJECTED: "the job ran, but the evidence gate rejected its reports",
    ExitCode.CANCELLED: "cancelled",
    ExitCode.BUG: "a bug in this program",
    ExitCode.TIMED_OUT: "the job exceeded its time limit and was ended",
    ExitCode.INTERRUPTED: "interrupted (^C)",
}

# Longer than any message of this program. It limits text from other sources.
MAX_MESSAGE = 1000

# Of what git passes on, these lines at most, and so many characters.
_MAX_LINES = 4
_MAX_WORDS = 500
# Of what a program printed as its output, so many bytes are searched for why it failed.
_MAX_PRINTED = 256 << 10
# What git adds once ssh or the server has said why; a message that is nothing else is kept.
_ADDED = re.compile(
    r"fatal: Could not read from remote repository\.|Please make sure you have the correct access rights"
    r"|and the repository exists\.|error: failed to push some refs to .*|hint: .*|To .*|!\s.*"
    r"|Warning: Permanently added .*|remote:"
)
_DECLINED = re.compile(r"\[remote rejected\][^(\n]*\(([^)\n]*)\)")


def one_line(text: str) -> str:
    """Return text as one bounded, printable line, so that untrusted text cannot control a terminal or fill a log."""
    shown = clean.line(text)
    return shown if len(shown) <= MAX_MESSAGE else shown[: MAX_MESSAGE - 3] + "..."


class KakeyaError(Exception):
    """A failure that is reported in one line, with the fix where one is known."""

    exit_code = ExitCode.FAILED
    # What `code` says where a raiser says nothing closer. Programs compare it, so it is no class's name.
    kind = "failed"

    def __init__(self, message: str, *, fix: str | None = None, code: str | None = None) -> None:
        self.message = one_line(message)
        super().__init__(self.message)
        self.fix = one_line(fix) if fix else fix
        self.code = code or self.kind

    def as_dict(self) -> dict[str, object]:
        """Return what ``--json`` prints."""
        return {
            "error": self.message,
            "code": self.code,
            "fix": self.fix,
            "exit_code": int(self.exit_code),
        }


class UsageError(KakeyaError):
    """The call is wrong; nothing was sent and nothing ran."""

    exit_code = ExitCode.USAGE
    kind = "usage"


class ManifestError(UsageError):
    """A request manifest is not valid. ``code`` is the reason for programs; the runner answers with it."""

    kind = "bad_manifest"


class PresetError(UsageError):
    """A preset file, or the parameters given for a preset, are not valid."""

    kind = "bad_preset"


class PolicyError(UsageError):
    """The runner's host-local policy is missing or not valid."""

    kind = "bad_policy"


class InfrastructureError(KakeyaError):
    """Something between the parties failed; the same call may succeed later."""

    exit_code = ExitCode.INFRASTRUCTURE
    kind = "infrastructure"


class ProcessError(InfrastructureError):
    """Another program could not be run, failed, or took too long."""

    kind = "process"

    def __init__(
        self,
        argv: tuple[str, ...],
        returncode: int | None,
        stdout: bytes = b"",
        stderr: bytes = b"",
        *,
        message: str | None = None,
        fix: str | None = None,
    ) -> None:
        self.argv = tuple(map(clean.hide_credentials, argv))
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr
        super().__init__(message or f"{argv[0]} ended with {returncode}: {self.words()}", fix=fix)

    def words(self) -> str:
        """Return what the program said went wrong: its last line; the message if it was not run to its end."""
        if self.returncode is None and hasattr(self, "message"):
            return self.message
        return self._telling()

    def printed(self) -> str:
        """Return what it printed, messages first. Long lines are cut: patterns may take quadratic time on one line."""
        text = (self.stderr + self.stdout[:_MAX_PRINTED]).decode("utf-8", "replace")
        return "\n".join(line[:MAX_MESSAGE] for line in text.split("\n"))

    def _telling(self) -> str:
        return one_line(self._said()[-1])

    def _said(self) -> list[str]:
        lines = re.split(r"[\r\n]+", self.stderr.decode("utf-8", "replace"))
        return [line.strip() for line in lines if line.strip()] or ["it printed nothing"]


class GitError(ProcessError):
    """Git failed."""

    kind = "git"

    def _telling(self) -> str:
        """Return what went wrong in the words of whoever knows: the server and its hooks, ssh, or git itself."""
        said = self._said()
        telling = [line for line in said if not _ADDED.fullmatch(line)] or said[:1]
        declined = _DECLINED.search(self.printed())
        if declined:
            telling.append(declined[1])
        words = one_line("; ".join(telling[-_MAX_LINES:]))
        return words if len(words) <= _MAX_WORDS else f"{words[: _MAX_WORDS - 3]}..."


class WaitTimeout(InfrastructureError):  # noqa: N818 - it is what happened, not a fault
    """The answer did not come in the time given."""

    kind = "no_answer_yet"


class RefusedError(KakeyaError):
    """Somebody with the right to do so said no."""

    exit_code = ExitCode.REFUSED
    kind = "refused"


class VerificationError(KakeyaError):
    """An answer does not hold what it says."""

    kind = "not_verified"


def as_told(error: Exception) -> KakeyaError:
    """Return what is said of any exception: of a bug of ours, or of what the system did not let us do."""
    if isinstance(error, KakeyaError):
        return error
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        message = f"{error.filename}: {error.strerror or error}"
        return InfrastructureError(
            message,
            fix="Check that the path exists on this machine and that you may access it.",
            code="system",
        )
    told = KakeyaError(
        f"this is a bug: {type(error).__name__}: {error}",
        fix="Please report it with the lines above.",
        code="bug",
    )
    told.exit_code = ExitCode.BUG
    return told
