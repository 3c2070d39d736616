"""The base of all exceptions that the user can act on, and the one table of exit codes.

KakeyaError
├── UsageError              the call itself is wrong; nothing was sent
│   └── ManifestError       a request manifest, or other JSON, is not valid
└── InfrastructureError     worth a retry: the network, the bus, the disk

``bridge.errors`` adds those of the client and the runner, ``engine.errors`` those of the engine.
"""

import sys
from enum import IntEnum
from pathlib import Path
from typing import ClassVar

from bridge.common import install, sanitize
from bridge.common.advice import changed


class ExitCode(IntEnum):
    """The exit codes of all commands of all three programs."""

    SUCCEEDED = 0
    FAILED = 1
    USAGE = 2
    INFRASTRUCTURE = 3
    REFUSED = 4
    GATE_REJECTED = 5
    CANCELLED = 6
    GATE_INCOMPLETE = 7
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
    ExitCode.GATE_REJECTED: "the gate rejected the job's reports, or --fail-if-slower applies",
    ExitCode.CANCELLED: "cancelled",
    ExitCode.GATE_INCOMPLETE: "the job ran, and its reports are incomplete or too uneven to judge: measure again",
    ExitCode.BUG: "a bug in this program",
    ExitCode.TIMED_OUT: "the job exceeded its time limit and was ended",
    ExitCode.INTERRUPTED: "interrupted (^C)",
}

# After an error with one of these codes, repeating the call does no harm and may succeed.
_RETRIED = (ExitCode.INFRASTRUCTURE,)


def safe_to_retry(exit_code: ExitCode, *, sends_again: bool = False) -> bool:
    """Return whether to repeat a call with this exit code: repeating it does no harm, and may succeed.

    With ``sends_again``, the call may have sent a request, and would send a second one.
    """
    return exit_code in _RETRIED and not sends_again


# A limit for messages that contain text from others; this program's own messages are shorter. A longer
# message keeps its beginning and its end, because the reason often follows a long value.
MAX_MESSAGE = 1000
_END = 300


def one_line(text: str) -> str:
    """Return text as one bounded, printable line, so that untrusted text cannot control a terminal or fill a log."""
    shown = sanitize.line(text)
    if len(shown) <= MAX_MESSAGE:
        return shown
    return f"{shown[: MAX_MESSAGE - _END - 3]}...{shown[-_END:]}"


class KakeyaError(Exception):
    """A failure that is reported in one line, with the fix if one is known.

    ``quoting`` is text from others: a server, git, or the author of an answer. People read it after the message; agents
    get it in a field of its own.
    """

    exit_code = ExitCode.FAILED
    # The value of `code` if the raiser gives none. Programs compare it, so it must not depend on a class's name.
    kind = "failed"
    # Used for messages that consist only of text from others.
    own_sentence: ClassVar[str] = ""

    def __init__(
        self, message: str, *, fix: str | None = None, code: str | None = None, quoting: str = ""
    ) -> None:
        self.message = one_line(f"{message}: {quoting}" if quoting else message)
        self.own_message = self.own_sentence or one_line(message)
        self.quoting = self.message if self.own_sentence else one_line(quoting)
        super().__init__(self.message)
        self.fix = changed(fix, one_line) if fix else fix
        self.code = code or self.kind
        # Whether the call may have sent a request, so that the same call would send a second one.
        self.sends_again = False

    def as_dict(self) -> dict[str, object]:
        """Return the object that ``--json`` prints."""
        code = int(self.exit_code)
        retry = safe_to_retry(self.exit_code, sends_again=self.sends_again)
        return {
            "error": self.message, "code": self.code, "fix": self.fix, "exit_code": code, "safe_to_retry": retry,
        }  # fmt: skip


class UsageError(KakeyaError):
    """The call is wrong; nothing was sent and nothing ran."""

    exit_code = ExitCode.USAGE
    kind = "usage"


class ManifestError(UsageError):
    """A request manifest is not valid. ``code`` is the reason for programs; the runner answers with it."""

    kind = "bad_manifest"


class InfrastructureError(KakeyaError):
    """Something between the parties failed; the same call may succeed later."""

    exit_code = ExitCode.INFRASTRUCTURE
    kind = "infrastructure"


def no_folder_error() -> UsageError:
    """Return the error if the folder in which a command was started was deleted."""
    message = "the folder in which this was started no longer exists"
    return UsageError(message, fix="Change to a folder that exists.")


def _is_folder_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def as_kakeya_error(error: Exception) -> KakeyaError:
    """Return any exception as a KakeyaError: a bug, or something that this machine lacks or forbids."""
    if isinstance(error, KakeyaError):
        return error
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        message = f"{error.filename}: {error.strerror or error}"
        fix = (
            "Check that the path exists on this machine, that you may access it, and that the disk has room."
        )
        return InfrastructureError(message, fix=fix, code="system")
    if isinstance(error, FileNotFoundError) and error.filename is None and _is_folder_gone():
        return no_folder_error()
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        if package not in ("", "bridge", "engine", "runner") and package not in sys.modules:
            return KakeyaError(
                f"{error.name} is not installed", fix=f"To install all packages: {install.how()}"
            )
    quoting, fix = f"{type(error).__name__}: {error}", "Please report it with the lines above."
    fault = KakeyaError("this is a bug", quoting=quoting, fix=fix, code="bug")
    fault.exit_code = ExitCode.BUG
    return fault
