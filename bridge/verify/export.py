"""Writes an answer's files to disk after verification, never through a link."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bridge.bus import wire
from bridge.bus.history import RequestBranch
from bridge.bus.wire import Result
from bridge.common import limits
from bridge.errors import UsageError, VerificationError
from bridge.system.git import Git
from bridge.system.local_files import read_regular
from bridge.verify.answer_files import Contents
from bridge.verify.check import Report

RESULTS = "kakeya-results"

_IGNORE = b"*\n"
# A `.git` file in an answer's folder, so that git looks for a repository neither in it nor above it.
_CLOSED = ".git"
_NO_REPOSITORY = b"gitdir: /dev/null/an-answer-is-no-repository\n"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Fetched:
    """A verified answer on disk."""

    folder: Path
    files: list[Path]
    result: Result
    report: Report


def read_answer(git: Git, view: RequestBranch, report: Report) -> dict[str, bytes]:
    """Return the existing files of an answer, verified or not, as far as they fit into memory."""
    if report.result is None:
        return {}
    listed = [file.path for file in report.result.files if wire.is_answer_path(file.path)]
    try:
        contents = Contents.of(git, view.tip, report.result)
    except VerificationError:
        return {}
    return contents.read(listed, limits.REPORTS_BYTES)


def write_answer(git: Git, view: RequestBranch, report: Report, out: Path | str | None) -> Fetched:
    """Write all files of an answer below ``out``, or none. An earlier fetch into the same folder is replaced.

    Git that runs in the folder takes neither it nor a folder around it for a repository. By default, ``out`` is a
    folder below ``kakeya-results``, which git ignores.

    Raises:
        VerificationError: a check of the answer fails.
        UsageError: ``out`` contains other files or is a link.
    """
    if report.result is None or not report.holds:
        wrong = "; ".join(f"{check.name}: {check.message}" for check in report.checks if check.ok is False)
        raise VerificationError(f"nothing was written: {wrong}", fix=f"See: kakeya verify {view.branch}")
    result = report.result
    name = f"{result.preset or 'request'}-{result.nonce or view.tip[:12]}"
    folder = Path(out) if out else Path(RESULTS) / name
    contents = Contents.of(git, view.tip, result)
    paths = [wire.RESULT, *(file.path for file in result.files)]
    paths += [wire.EVIDENCE] if wire.EVIDENCE in contents.files else []
    with _parent_of(folder, ours=out is None) as parent:
        _check_place(folder, parent)
        _replace(parent, folder.absolute().name, contents, paths)
    return Fetched(folder, [folder / path for path in paths], result, report)


@contextmanager
def _parent_of(folder: Path, *, ours: bool) -> Iterator[int]:
    """Open the parent of ``folder``. With ``ours`` it is created and ignored by git, and it must not be a link."""
    where = folder.absolute().parent
    where.mkdir(parents=True, exist_ok=True)
    try:
        parent = os.open(where, _FOLDER | (os.O_NOFOLLOW if ours else 0))
    except OSError as error:
        fix = "Remove it, or name another folder with --out."
        raise UsageError(f"{folder.parent} is not a folder: {error.strerror}", fix=fix) from error
    try:
        if ours:
            _ignore_in_git(parent)
        yield parent
    finally:
        os.close(parent)


def _ignore_in_git(folder: int) -> None:
    with suppress(FileExistsError), os.fdopen(os.open(".gitignore", _NEW_FILE, dir_fd=folder), "wb") as file:
        file.write(_IGNORE)


def _check_place(folder: Path, parent: int) -> None:
    """Raise UsageError if the folder contains files that no earlier fetch wrote."""
    try:
        about = os.stat(folder.absolute().name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return
    fix = "Name an empty folder, or one of an earlier fetch, with --out."
    if stat.S_ISLNK(about.st_mode):
        raise UsageError(f"{folder} is a link", fix=fix)
    if not stat.S_ISDIR(about.st_mode) or _others_in(folder):
        raise UsageError(f"{folder} holds something else", fix=fix)


def _others_in(folder: Path) -> bool:
    """Return whether a folder contains files that no earlier fetch wrote."""
    ours = {folder / path for path in (wire.RESULT, wire.EVIDENCE)}
    if read_regular(folder / _CLOSED, len(_NO_REPOSITORY)) == _NO_REPOSITORY:
        ours.add(folder / _CLOSED)
    try:
        earlier = wire.parse_result(read_regular(folder / wire.RESULT, wire.MAX_RESULT))
        ours |= {folder / file.path for file in earlier.files}
    except VerificationError:
        ours.clear()
    return any(path not in ours and not path.is_dir() for path in folder.rglob("*"))


def _replace(parent: int, name: str, contents: Contents, paths: list[str]) -> None:
    """Write files into a new folder, and replace the folder ``name`` with it."""
    apart = f".{name[:100]}.{secrets.token_hex(8)}"
    os.mkdir(apart, 0o700, dir_fd=parent)
    try:
        created = os.open(apart, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
        try:
            _write(created, _CLOSED, iter([_NO_REPOSITORY]))
            for path, pieces in contents.copies(paths):
                _write(created, path, pieces)
            os.fchmod(created, 0o755)
        finally:
            os.close(created)
        with suppress(FileNotFoundError):
            shutil.rmtree(name, dir_fd=parent)
        os.rename(apart, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        shutil.rmtree(apart, ignore_errors=True, dir_fd=parent)
        raise


def _write(root: int, path: str, pieces: Iterator[bytes]) -> None:
    """Write a file below a folder. No part of its path may be a link."""
    *folders, name = path.split("/")
    opened: list[int] = []
    try:
        for part in folders:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=opened[-1] if opened else root)
            opened.append(os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=opened[-1] if opened else root))
        with os.fdopen(os.open(name, _NEW_FILE, 0o644, dir_fd=opened[-1] if opened else root), "wb") as file:
            for piece in pieces:
                file.write(piece)
    finally:
        for descriptor in opened:
            os.close(descriptor)
