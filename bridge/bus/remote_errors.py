"""Explains why an operation on a remote failed, from the messages of git and the server."""

import re
from contextlib import suppress
from functools import partial

from bridge.bus import exact_refs
from bridge.bus.branch_names import is_in_conflict
from bridge.bus.hosts import causes
from bridge.bus.hosts.advice import Surroundings
from bridge.bus.hosts.push_end import is_overtaken
from bridge.common.advice import PREFIX, Advice
from bridge.errors import GitError, InfrastructureError, ProcessError, RefusedError, UsageError
from bridge.system.git import UNWRITABLE, Git

# Sentences of git and curl themselves. A server may send the same text, but only in these forms.
_GITS_OWN = re.compile(
    r"fatal: '[^'\s]+' does not appear to be a git repository"
    r"|fatal: unable to access '[^'\s]+': (?:Could not resolve host: \S+|Failed to connect to \S+ port \d+"
    r"(?: after \d+ ms)?: (?:Could(?:n't| not) connect to server|Connection refused))"
)
_OTHER_HASH = re.compile(
    r"^fatal: (?:the receiving end does not support .* hash|mismatched algorithms)", re.MULTILINE
)
_BLOCKED = re.compile(r"'refs/heads/([^']+)' exists; cannot create")
# Servers' messages about a name that may conflict with another name. The listing shows the other name.
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
    if error.code == UNWRITABLE:
        return error
    output = error.output()
    conflict = _conflict(output, git, name, branch) if branch else None
    return _unfit(output, name) or conflict or _caused(error, Surroundings(git, name, branch or ""))


def _unfit(output: str, name: str) -> UsageError | None:
    """Return why this clone and this remote can never work together."""
    if _OTHER_HASH.search(output):
        return sha256_remote_error(name)
    if "shallow update not allowed" in output:
        message = "the remote cannot take a commit whose history this shallow clone lacks"
        return UsageError(message, fix="Run: git fetch --unshallow")
    return None


def _conflict(output: str, git: Git, name: str, branch: str) -> RefusedError | None:
    if blocked := _BLOCKED.search(output):
        return name_conflict_error(branch, blocked[1])
    if not is_overtaken(output) and _CONFLICT.search(output):
        with suppress(GitError):
            for other in exact_refs.find_branches(git, name, partial(is_in_conflict, branch)):
                return name_conflict_error(branch, other)
    return None


def name_conflict_error(branch: str, other: str) -> RefusedError:
    """Return the error for a branch whose name the server cannot hold beside that of another branch."""
    fix = Advice(
        f"Rename the branch {other!r} on the remote, or choose another prefix that a runner serves (",
        PREFIX,
        ").",
    )
    message = f"a branch named {other!r} stands in the way of {branch!r}"
    return RefusedError(message, fix=fix, code="squatted")


def _caused(error: ProcessError, near: Surroundings) -> Exception:
    cause = causes.find(error, is_push=bool(near.branch))
    words = error.summary()
    if cause and cause.is_refusal:
        message = f"{near.name} does not let you push {near.branch!r}, because {cause.sentence}"
        return RefusedError(message, fix=cause.help(near), code=cause.code, quoting=words)
    message = (
        cause.sentence.format(name=near.name) if cause else f"{near.name} did not do what it was asked for"
    )
    fix, code = (cause.help(near), cause.code) if cause else (None, "remote_failed")
    if _GITS_OWN.fullmatch(words):
        return InfrastructureError(f"{message}: {words}", fix=fix, code=code)
    return InfrastructureError(message, fix=fix, code=code, quoting=words)


def sha256_remote_error(name: str) -> UsageError:
    """Return the error for a remote that names its objects by SHA-256."""
    message = f"{name} names its objects by SHA-256, which is not supported"
    fix = "Use a bus that was made with --object-format=sha1."
    return UsageError(message, fix=fix, code="object_format")
