"""Everything that can go wrong for a reason the user can act on.

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

from enum import IntEnum


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


# Longer than any sentence of ours; it bounds what a stranger's text can add.
MAX_MESSAGE = 1000


def one_line(text: str) -> str:
    """Return text as one bounded, printable line: what strangers wrote must not steer a terminal or fill a log."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:MAX_MESSAGE])
    return shown if len(shown) < MAX_MESSAGE else shown[: MAX_MESSAGE - 3] + "..."


class KakeyaError(Exception):
    """A failure that is reported in one line, with what mends it where that is known."""

    exit_code = ExitCode.FAILED

    def __init__(self, message: str, *, fix: str | None = None, code: str | None = None) -> None:
        self.message = one_line(message)
        super().__init__(self.message)
        self.fix = fix
        self.code = code or type(self).__name__

    def as_dict(self) -> dict[str, object]:
        """Return the form that `--json` prints."""
        return {
            "error": self.message,
            "code": self.code,
            "fix": self.fix,
            "exit_code": int(self.exit_code),
        }


class UsageError(KakeyaError):
    """The call is wrong; nothing was sent and nothing ran."""

    exit_code = ExitCode.USAGE


class ManifestError(UsageError):
    """A request manifest is not valid. `code` says in one word why; the runner answers with it."""


class PresetError(UsageError):
    """A preset file, or the parameters given for a preset, are not valid."""


class PolicyError(UsageError):
    """The runner's host-local policy is missing or not valid."""


class InfrastructureError(KakeyaError):
    """Something between the parties failed; the same call may succeed later."""

    exit_code = ExitCode.INFRASTRUCTURE


class ProcessError(InfrastructureError):
    """Another program could not be run, failed, or took too long."""

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
        self.argv = argv
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr
        super().__init__(message or f"{argv[0]} ended with {returncode}: {self.last_line()}", fix=fix)

    def last_line(self) -> str:
        """Return the line of standard error that says most: git's `fatal:`/`error:`, else the last one."""
        lines = [line.strip() for line in self.stderr.decode("utf-8", "replace").split("\n") if line.strip()]
        telling = [line for line in lines if line.startswith(("fatal:", "error:", "remote: error:"))]
        return one_line((telling or lines or ["it printed nothing"])[-1])


class GitError(ProcessError):
    """Git failed."""


class WaitTimeout(InfrastructureError):  # noqa: N818 - it is what happened, not a fault
    """The answer did not come in the time given."""


class RefusedError(KakeyaError):
    """Somebody with the right to do so said no."""

    exit_code = ExitCode.REFUSED


class VerificationError(KakeyaError):
    """An answer does not hold what it says."""
