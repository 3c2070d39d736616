"""The commit that the engine was built from."""

from importlib import metadata
from pathlib import Path

from engine import process

_ENGINE = Path(__file__).resolve().parent


def of(folder: Path = _ENGINE) -> tuple[str, bool] | None:
    """Return the commit and whether files of ``folder`` differ from it; None if nothing names one.

    A wheel holds what its build recorded. In a checkout git is asked.
    """
    recorded = _recorded() if folder == _ENGINE else None
    if recorded:
        commit, _, modified = recorded.partition(" ")
        return commit, bool(modified)
    # A virtual environment inside somebody's checkout is no checkout of ours.
    if not _git(folder, "ls-files", "--error-unmatch", "__init__.py"):
        return None
    found = _git(folder, "rev-parse", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--", ".")
    return (found, bool(changed)) if found else None


def _git(folder: Path, *args: str) -> str | None:
    """Ask git about what is there: no file-system monitor is started, and no object stands for another one."""
    return process.answer(
        "git", "--no-replace-objects", "-C", str(folder), "-c", "core.fsmonitor=false", *args
    )


def _recorded() -> str | None:
    try:
        text = metadata.distribution("kakeya-bridge").read_text("extra_metadata/commit")
    except metadata.PackageNotFoundError:
        return None
    return text.strip() if text else None
