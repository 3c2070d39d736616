"""Errors of the client and the runner that the user can act on, on top of ``bridge.common.errors``.

KakeyaError
├── UsageError              the call itself is wrong; nothing was sent
│   ├── ManifestError       a request manifest is not valid
│   ├── PresetError         a preset file, or the parameters given for a preset, are not valid
│   └── PolicyError         the runner's host-local policy is missing or not valid
├── InfrastructureError     worth a retry: the network, the bus, the disk
│   ├── ProcessError        another program failed
│   │   └── GitError        that program was git
│   └── WaitTimeout         no answer in the time given
├── RefusedError            a runner, or the bus, refused
└── VerificationError       an answer contradicts itself or its signature
"""

import re

from bridge.common import sanitize
from bridge.common.errors import (
    MAX_MESSAGE,
    ExitCode,
    InfrastructureError,
    KakeyaError,
    ManifestError,
    UsageError,
    as_kakeya_error,
    no_folder_error,
    one_line,
)

__all__ = [
    "ExitCode", "GitError", "InfrastructureError", "KakeyaError", "ManifestError", "PolicyError", "PresetError",
    "ProcessError", "RefusedError", "UsageError", "VerificationError", "WaitTimeout", "as_kakeya_error",
    "no_folder_error", "one_line",
]  # fmt: skip

# At most this many lines and characters of git's output are kept.
_MAX_LINES = 4
_MAX_WORDS = 500
# How many bytes of a program's output are searched for the reason of its failure.
_MAX_PRINTED = 256 << 10
# Sentences that git adds after ssh or the server gave the reason. A message keeps these sentences only if
# there is nothing else.
_ADDED = re.compile(
    r"fatal: Could not read from remote repository\.|Please make sure you have the correct access rights"
    r"|and the repository exists\.|error: failed to push some refs to .*|hint: .*|To .*|!\s.*"
    r"|Warning: Permanently added .*|remote:"
    # Git's advice, which has no effect on a runner.
    r"|To add an exception for this directory, call:|git config --global --add safe\.directory .*"
)
_DECLINED = re.compile(r"\[remote rejected\][^(\n]*\(([^)\n]*)\)")


class PresetError(UsageError):
    """A preset file, or the parameters given for a preset, are not valid."""

    kind = "bad_preset"


class PolicyError(UsageError):
    """The runner's host-local policy is missing or not valid."""

    kind = "bad_policy"


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
        self.argv = tuple(map(sanitize.hide_credentials, argv))
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr
        quoting = "" if returncode is None else self.summary()
        super().__init__(message or f"{argv[0]} ended with {returncode}", fix=fix, quoting=quoting)

    def summary(self) -> str:
        """Return the reason that the program printed last, or the message if the program did not end by itself."""
        if self.returncode is None and hasattr(self, "message"):
            return self.message
        return self._relevant_lines()

    def output(self) -> str:
        """Return the program's output, messages first. Long lines are cut: patterns may take quadratic time on them."""
        text = (self.stderr + self.stdout[:_MAX_PRINTED]).decode("utf-8", "replace")
        return "\n".join(line[:MAX_MESSAGE] for line in text.split("\n"))

    def _relevant_lines(self) -> str:
        return one_line(self._stderr_lines()[-1])

    def _stderr_lines(self) -> list[str]:
        lines = re.split(r"[\r\n]+", self.stderr.decode("utf-8", "replace"))
        return [line.strip() for line in lines if line.strip()] or ["it printed nothing"]


class GitError(ProcessError):
    """Git failed."""

    kind = "git"

    def _relevant_lines(self) -> str:
        """Return the reason from the most specific source: the server and its hooks, ssh, or git itself."""
        lines = self._stderr_lines()
        relevant = [line for line in lines if not _ADDED.fullmatch(line)] or lines[:1]
        declined = _DECLINED.search(self.output())
        if declined:
            relevant.append(declined[1])
        text = one_line("; ".join(relevant[-_MAX_LINES:]))
        return text if len(text) <= _MAX_WORDS else f"{text[: _MAX_WORDS - 3]}..."


class WaitTimeout(InfrastructureError):  # noqa: N818 - it is what happened, not a fault
    """The answer did not come in the time given."""

    kind = "no_answer_yet"


class RefusedError(KakeyaError):
    """A runner or a server refused the request, as its owner's rules demand."""

    exit_code = ExitCode.REFUSED
    kind = "refused"


class VerificationError(KakeyaError):
    """An answer's content contradicts itself or its signature."""

    kind = "not_verified"
    own_sentence = "the answer does not hold what it says"
