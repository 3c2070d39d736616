"""Recognizes that git cannot write to its own repository, and says what helps there."""

import os
import pwd
import re
from contextlib import suppress
from pathlib import Path

_REASONS = "Permission denied|Read-only file system|No space left on device|Disk quota exceeded|Operation not permitted"
# Messages of git itself. A server's messages begin with `remote:`.
_UNWRITABLE = re.compile(
    r"^(?:error|fatal): (?:insufficient permission for adding an object to repository database"
    rf"|(?:.*: )?[Uu]nable to (?:create|write|append|open|mkdir)[^\n]*: ({_REASONS})"
    rf"|(?:could not|cannot|failed to) (?:create|write|open|mkdir)[^\n]*: ({_REASONS})"
    rf"|[^\n]*write (?:error|failure)[^\n]*: ({_REASONS}))",
    re.MULTILINE,
)


def find(messages: str, repository: Path) -> tuple[str, str] | None:
    """Return what is wrong with a repository and what helps, if git's messages say that it cannot write there."""
    match = _UNWRITABLE.search(messages)
    if match is None:
        return None
    reason = next(filter(None, match.groups()), "Permission denied")
    folder = (repository / ".git" if (repository / ".git").is_dir() else repository).absolute()
    return f"git cannot write to {folder}", _fix(reason, folder)


def _fix(reason: str, folder: Path) -> str:
    if reason == "Read-only file system":
        return "Use a clone on a file system that can be written to."
    if reason in ("No space left on device", "Disk quota exceeded"):
        return "Free some space there."
    owner = _owner_elsewhere(folder)
    if owner:
        return f"Part of it belongs to {owner}: work as that user, or give it to yours with chown -R."
    return f"Make it writable for your user: chmod -R u+rwX {folder}"


def _owner_elsewhere(folder: Path) -> str | None:
    """Return the name of another user who owns the folder, or the folder of its objects."""
    for path in (folder, folder / "objects", folder / "refs"):
        with suppress(OSError):
            if (uid := path.stat().st_uid) != os.geteuid():
                with suppress(KeyError):
                    return pwd.getpwuid(uid).pw_name
                return f"user {uid}"
    return None
