"""The folder of presets of one's own: the one that KAKEYA_PRESETS names, or the one in the working tree."""

from pathlib import Path

from bridge.common import environment
from bridge.errors import UsageError
from bridge.presets.sources import SHARED, VARIABLE
from bridge.system.git import Git


def own_folder(repo: Path | str) -> Path | None:
    """Return the folder that KAKEYA_PRESETS names, else the working tree's, if there is one."""
    if folder := environment.get(VARIABLE):
        return environment.expand(folder).absolute()
    try:
        top = top_of(repo)
    except UsageError:
        return None
    return top / SHARED if (top / SHARED).is_dir() else None


def top_of(repo: Path | str) -> Path:
    """Return the top folder of the repository's working tree.

    Raises:
        UsageError: there is no repository, or it has no working tree.
    """
    folder = Path(repo)
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", fix="Name a folder inside a git repository with -C.")
    answer = Git.of_user(folder)("rev-parse", "--show-toplevel", ok=(0, 128))
    top = answer.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")
    if answer.returncode or not top:
        reason = answer.stderr.decode("utf-8", "replace")
        if "dubious ownership" in reason:
            fix = f"Run: git config --global --add safe.directory {folder.resolve()}"
            raise UsageError(f"git does not trust {folder}: it belongs to another user", fix=fix)
        fix = "Make one first: git init. Or name one with -C DIR."
        raise UsageError(f"{folder.resolve()} is not inside a git repository with a working tree", fix=fix)
    return Path(top)
