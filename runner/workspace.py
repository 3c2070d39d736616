"""A throw-away folder for one run: a home, a temporary folder, and the request's tree where its code is to run.

The tree is written from git objects, file by file: no checkout, no `.git`, no hook, no filter, no submodule.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bridge import objects, wire
from bridge.git import Git
from bridge.objects import Entry
from bridge.params import PathParam, Value
from bridge.presets import Preset
from runner.policy import Limits
from runner.refusal import Refusal

_BATCH = 2_000


@dataclass(frozen=True)
class Workspace:
    """Where a job runs: `tree` is its working directory, `home` its home."""

    tree: Path
    home: Path


@contextmanager
def workspace(state: Path, name: str) -> Iterator[Workspace]:
    """Make a folder for one run and remove it with all it holds afterwards."""
    parent = state / "work"
    parent.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent))
    try:
        place = Workspace(root / "tree", root / "home")
        place.tree.mkdir()
        (place.home / "tmp").mkdir(parents=True)
        (place.tree / wire.REPORTS).mkdir(parents=True)
        yield place
    finally:
        remove(root)


def sweep(state: Path) -> None:
    """Remove what runs that were killed left behind."""
    for left in (state / "work").glob("*"):
        remove(left)


def remove(root: Path) -> None:
    """Remove a folder, also one whose permissions a job took away."""

    def open_up(_function: object, path: str, _error: object) -> None:
        for folder in (Path(path).parent, Path(path)):
            if folder.is_dir() and not folder.is_symlink():
                folder.chmod(0o700)
        if Path(path).is_dir() and not Path(path).is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            Path(path).unlink(missing_ok=True)

    shutil.rmtree(root, onerror=open_up)


def export_tree(git: Git, commit: str, root: Path, limits: Limits) -> None:
    """Write a commit's tree below `root`. Raises Refusal where it is too large or holds what no tree should.

    Symbolic links are written only where they point inside the tree; submodules stay empty folders.
    """
    entries = objects.list_tree(git, commit, recursive=True)
    if len(entries) > limits.tree_files:
        raise Refusal(
            "tree_too_large", f"the tree holds {len(entries)} files; {limits.tree_files} are the most"
        )
    size = sum(entry.size for entry in entries)
    if size > limits.tree_mb << 20:
        raise Refusal("tree_too_large", f"the tree holds {size >> 20} MiB; {limits.tree_mb} are the most")
    _check_paths([entry.path for entry in entries])
    files = [entry for entry in entries if entry.is_file]
    for i in range(0, len(files), _BATCH):
        _write_files(git, files[i : i + _BATCH], root)
    for entry in entries:
        if entry.mode == "120000":
            _write_link(git, entry, root)
        elif entry.kind == "commit":
            (root / entry.path).mkdir(parents=True, exist_ok=True)
    # Judged when all are there: links that each stay inside can lead out together.
    for entry in entries:
        if entry.mode == "120000" and not _is_inside(root / entry.path, root):
            raise Refusal("hostile_tree", f"the link {entry.path!a} leads out of the tree")


def check_paths(preset: Preset, params: Mapping[str, Value], root: Path) -> None:
    """Check that each path parameter names something that really lies below its folder. Raises Refusal."""
    for name, param in preset.params.items():
        if isinstance(param, PathParam):
            file = str(params[name]).partition("::")[0]
            real = (root / file).resolve()
            if not real.exists():
                raise Refusal("no_such_path", f"{name}: the request's tree has no {file}")
            if not any(real.is_relative_to((root / folder).resolve()) for folder in param.under) or (
                not real.is_relative_to(root.resolve())
            ):
                raise Refusal("path_escape", f"{name}: {file} leads out of {' or '.join(param.under)}")


def _check_paths(paths: list[str]) -> None:
    """Refuse names that a file system could fold into `.git`, into each other, or into another's folder."""
    folded: dict[str, str] = {}
    for path in paths:
        parts = [_fold(part) for part in PurePosixPath(path).parts]
        if path.startswith("/") or any(part in (".git", "git~1", "") for part in parts):
            raise Refusal("hostile_tree", f"the tree holds {path!a}")
        if folded.setdefault("/".join(parts), path) != path:
            raise Refusal("hostile_tree", f"a file system may take {path!a} for another file of the tree")
    for name, path in folded.items():
        if any(str(parent) in folded for parent in PurePosixPath(name).parents):
            raise Refusal("hostile_tree", f"a file system may take {path!a} for a file in a file")


def _fold(part: str) -> str:
    """Return a name as case-insensitive file systems that skip zero-width characters see it."""
    ignored = {*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF}
    return "".join(c for c in part if ord(c) not in ignored).casefold().rstrip(" .")


def _write_files(git: Git, files: list[Entry], root: Path) -> None:
    largest = max((entry.size for entry in files), default=0)
    blobs = objects.read_many(git, [entry.oid for entry in files], max_bytes=largest)
    for entry, blob in zip(files, blobs, strict=True):
        target = root / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = 0o755 if entry.mode == "100755" else 0o644
        with os.fdopen(
            os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb"
        ) as file:
            file.write(blob or b"")


def _write_link(git: Git, entry: Entry, root: Path) -> None:
    target = git("cat-file", "blob", entry.oid).stdout.decode("utf-8", "surrogateescape")
    place = root / entry.path
    if target.startswith("/") or "\0" in target:
        raise Refusal("hostile_tree", f"the link {entry.path!a} leads out of the tree")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def _is_inside(link: Path, root: Path) -> bool:
    try:
        return link.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):
        return False
