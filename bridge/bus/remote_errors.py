"""Explains why an operation on a remote failed, from the messages of git and the server."""

import re
import shlex
from contextlib import suppress
from functools import partial
from pathlib import Path

from bridge.bus import exact_refs
from bridge.bus.branch_names import is_in_conflict
from bridge.bus.push_end import is_overtaken
from bridge.errors import GitError, InfrastructureError, ProcessError, RefusedError, UsageError
from bridge.system import git_output
from bridge.system.git import Git

# Whole phrases that servers send. Names and addresses occur in git's messages too, so a single word proves nothing.
_NO = r"(?:denied|declined|not allowed|not permitted|prohibited|protected branch|read-only)"
_NO_RIGHT = re.compile(
    rf"returned error: 403|\[remote rejected\] \([^)\n]*{_NO}|^(?:remote: |error: permission ).*{_NO}",
    re.IGNORECASE | re.MULTILINE,
)
# Sentences of git and curl themselves. A server may send the same text, but only in these forms.
_GITS_OWN = re.compile(
    r"fatal: '[^'\s]+' does not appear to be a git repository"
    r"|fatal: unable to access '[^'\s]+': (?:Could not resolve host: \S+|Failed to connect to \S+ port \d+"
    r"(?: after \d+ ms)?: (?:Could(?:n't| not) connect to server|Connection refused))"
)
_NO_ACCESS = re.compile(
    r"could not read|does not appear to be a git repository|repository .*not found|authentication failed"
    r"|terminal prompts disabled",
    re.IGNORECASE,
)
_MOVED = re.compile(r"returned error: 30[12378]\b")
# In the words of GnuTLS, OpenSSL and macOS.
_CERTIFICATE = re.compile(
    r"^fatal: unable to access .*: (?:server certificate verification failed|SSL: |SSL certificate|SSL peer)",
    re.MULTILINE,
)
_OTHER_HASH = re.compile(
    r"^fatal: (?:the receiving end does not support .* hash|mismatched algorithms)", re.MULTILINE
)
_BLOCKED = re.compile(r"'refs/heads/([^']+)' exists; cannot create")
# Servers' messages about a name that may conflict with another name. The listing shows which one that is.
_CONFLICT = re.compile(
    r"directory file conflict|refname conflict|case-insensitive filesystem|blocking reference"
    r"|failed to (?:update ref|lock)|cannot lock ref '[^']+': Unable to create '[^']+': (?:Not|Is) a directory"
)
_LOCKED = re.compile(r"cannot lock ref|[Uu]nable to create '[^']*\.lock'")
# A branch that was listed no longer exists.
_GONE = re.compile(r"not our ref|unadvertised object|remote ref")


def is_transient(output: str) -> bool:
    """Return whether a fetch may soon succeed: a branch moved since it was listed, or another command wrote it."""
    return bool(_LOCKED.search(output) or _GONE.search(output))


def explain(error: ProcessError, git: Git, name: str, branch: str | None = None) -> Exception:
    """Turn git's message into an error that says what happened and what to do."""
    output = error.output()
    return (
        _unfit(output, name)
        or (branch and _refused(error, output, git, name, branch))
        or _failed(error, output, git, name)
    )


def _unfit(output: str, name: str) -> UsageError | None:
    """Return why this clone and this remote can never work together."""
    if _OTHER_HASH.search(output):
        return sha256_remote_error(name)
    if "shallow update not allowed" in output:
        message = "the remote cannot take a commit whose history this shallow clone lacks"
        return UsageError(message, fix="Run: git fetch --unshallow")
    return None


def _refused(error: ProcessError, output: str, git: Git, name: str, branch: str) -> RefusedError | None:
    if blocked := _BLOCKED.search(output):
        return name_conflict_error(branch, blocked[1])
    if not is_overtaken(output) and _CONFLICT.search(output):
        with suppress(GitError):
            for other in exact_refs.find_branches(git, name, partial(is_in_conflict, branch)):
                return name_conflict_error(branch, other)
    if _NO_RIGHT.search(output):
        message = f"{name} does not let you push {branch!r}"
        fix = "Whoever administers the remote can give this account the right to."
        return RefusedError(message, fix=fix, code="no_push_right", quoting=error.summary())
    return None


def name_conflict_error(branch: str, other: str) -> RefusedError:
    """Return the error for a branch whose name the server cannot hold beside that of another branch."""
    fix = f"Rename the branch {other!r} on the remote, or choose another prefix that a runner serves (--prefix)."
    message = f"a branch named {other!r} stands in the way of {branch!r}"
    return RefusedError(message, fix=fix, code="squatted")


def _failed(error: ProcessError, output: str, git: Git, name: str) -> InfrastructureError:
    code = "unreachable"
    if _CERTIFICATE.search(output):
        message = f"cannot tell whether the server of {name} is the right one"
        fix = (
            "Check this machine's clock, the address and the server's certificate. If its authority is your "
            "own, name it with: git config http.sslCAInfo FILE"
        )
    elif _MOVED.search(output):
        message = f"{name} redirects to another address"
        fix = (
            "Name the new address with `git remote set-url`. No redirect is followed after git has contacted "
            "the server, or if http.extraHeader is set, which may hold a token."
        )
    elif _NO_ACCESS.search(output):
        message, fix = f"cannot reach {name}", _how_to_check(git, name)
    else:
        message, code = f"{name} did not do what it was asked for", "remote_failed"
        fix = "Try again; `kakeya doctor` checks the remote."
    words = error.summary()
    if _GITS_OWN.fullmatch(words):
        return InfrastructureError(f"{message}: {words}", fix=fix, code=code)
    return InfrastructureError(message, fix=fix, code=code, quoting=words)


def _how_to_check(git: Git, name: str) -> str:
    """Return commands that work in the user's folder, for a named remote and for an address."""
    here = ["git"] if git.directory == Path() else ["git", "-C", str(git.directory)]
    access = f"Check your access with: {shlex.join([*here, 'ls-remote', name])}"
    if name not in git_output.lines(git("remote").stdout):
        return access
    return f"{access}; and the address with: {shlex.join([*here, 'remote', 'get-url', name])}"


def sha256_remote_error(name: str) -> UsageError:
    """Return the error for a remote that names its objects by SHA-256."""
    message = f"{name} names its objects by SHA-256, which is not supported"
    fix = "Use a bus that was made with --object-format=sha1."
    return UsageError(message, fix=fix, code="object_format")
