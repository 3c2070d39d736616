"""Which code measured: this package's version, digest and commit, and whether libraries are as installed."""

import base64
import hashlib
from importlib import metadata
from pathlib import Path
from typing import Any

from engine import process

PACKAGE = "kakeya-bridge"
SOURCES = (".py", ".h")


def identity() -> dict[str, Any]:
    """Return the ``code`` of a report's identity.

    ``digest`` is that of the engine's sources: the lines that ``sha256sum`` prints for them, sorted by path.
    ``commit`` and ``dirty`` stand there where the engine runs from a git checkout of its own.
    """
    folder = Path(__file__).parent
    return {"version": version(), "digest": digest(folder), **_commit(folder)}


def version() -> str:
    """Return the installed version of this package."""
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return "not installed"


def digest(folder: Path) -> str:
    """Return ``sha256:`` and hex over a folder's sources."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in SOURCES and path.is_file())
    whole = hashlib.sha256()
    for path in files:
        line = f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}\n"
        whole.update(line.encode())
    return f"sha256:{whole.hexdigest()}"


def _commit(folder: Path) -> dict[str, Any]:
    root = folder.parent
    if not (root / ".git").exists():
        return {}
    git = ("git", f"--git-dir={root / '.git'}", f"--work-tree={root}")
    commit = process.answer(*git, "rev-parse", "--verify", "HEAD")
    # Its first line is the branch, so that a clean tree is told from a question that failed.
    status = process.answer(*git, "status", "--porcelain", "--branch", "--", str(folder))
    if commit is None or status is None:
        return {}
    return {"commit": commit, "dirty": len(status.splitlines()) > 1}


def modified(package: str) -> list[str]:
    """Return the Python files of a distribution that are not as they were installed, sorted."""
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return []
    return sorted(
        str(file) for file in files if file.suffix == ".py" and file.hash and not _as_installed(file)
    )


def _as_installed(file: metadata.PackagePath) -> bool:
    path = Path(str(file.locate()))
    if file.hash is None or file.hash.mode != "sha256" or not path.is_file():
        return False
    found = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
    return found == file.hash.value
