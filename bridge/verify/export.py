"""Writes an answer's files to disk after verification, never through a link."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bridge.bus import wire
from bridge.bus.history import RequestBranch
from bridge.bus.wire import Result
from bridge.common import limits
from bridge.common.advice import OUT, Advice, step
from bridge.common.whole_files import atomic_folder_write
from bridge.errors import UsageError, VerificationError
from bridge.system.git import Git
from bridge.system.local_files import read_regular
from bridge.verify.answer_files import Contents
from bridge.verify.check import Report

RESULTS = "kakeya-results"

_IGNORE = b"*\n"
# A `.git` file in an answer's folder stops git from looking for a repository in or above that folder.
_CLOSED = ".git"
_NO_REPOSITORY = b"gitdir: /dev/null/an-answer-is-no-repository\n"


@dataclass(frozen=True)
class Fetched:
    """A verified answer on disk."""

    folder: Path
    files: list[Path]
    result: Result
    report: Report


def read_answer(git: Git, branch: RequestBranch, report: Report) -> dict[str, bytes]:
    """Return the existing files of an answer, verified or not, as far as they fit into memory."""
    if report.result is None:
        return {}
    listed = [file.path for file in report.result.files if wire.is_answer_path(file.path)]
    try:
        return Contents.of(git, branch.tip, report.result).read(listed, limits.REPORTS_BYTES)
    except VerificationError:
        return {}


def write_answer(git: Git, branch: RequestBranch, report: Report, out: Path | str | None) -> Fetched:
    """Write all files of an answer below ``out``, or none. An earlier fetch into the same folder is replaced.

    Git run in the folder finds no repository, in it or above it. By default, ``out`` is a folder below
    ``kakeya-results``, which git ignores.

    Raises:
        VerificationError: a check of the answer fails.
        UsageError: ``out`` contains other files or is a link.
    """
    if report.result is None or not report.holds:
        wrong = "; ".join(f"{check.name}: {check.message}" for check in report.checks if check.ok is False)
        raise VerificationError(f"nothing was written: {wrong}", fix=step("See", "verify", branch.name))
    result = report.result
    name = f"{result.preset or 'request'}-{result.nonce or branch.tip[:12]}"
    folder = Path(out) if out else Path(RESULTS) / name
    contents = Contents.of(git, branch.tip, result)
    paths = [wire.RESULT, *(file.path for file in result.files)]
    paths += [wire.EVIDENCE] if wire.EVIDENCE in contents.files else []
    _make_parent(folder, ours=out is None)
    _check_place(folder)
    with atomic_folder_write(folder.absolute()) as new:
        (new / _CLOSED).write_bytes(_NO_REPOSITORY)
        # A folder whose writing ends half-way holds no answer: what names the others comes last.
        for path, pieces in contents.copies([*paths[1:], paths[0]]):
            (new / path).parent.mkdir(parents=True, exist_ok=True)
            with (new / path).open("xb") as file:
                file.writelines(pieces)
    return Fetched(folder, [folder / path for path in paths], result, report)


def _make_parent(folder: Path, *, ours: bool) -> None:
    """Make the parent of ``folder``. With ``ours`` git ignores it, and it must not be a link."""
    parent = folder.absolute().parent
    if ours and parent.is_symlink():
        fix = Advice("Remove it, or name another folder with ", OUT, ".")
        raise UsageError(f"{folder.parent} is not a folder: it is a link", fix=fix)
    parent.mkdir(parents=True, exist_ok=True)
    if ours:
        with suppress(FileExistsError), (parent / ".gitignore").open("xb") as file:
            file.write(_IGNORE)


def _check_place(folder: Path) -> None:
    """Raise UsageError if the folder contains files that no earlier fetch wrote."""
    fix = Advice("Name an empty folder, or one of an earlier fetch, with ", OUT, ".")
    if folder.is_symlink():
        raise UsageError(f"{folder} is a link", fix=fix)
    if folder.exists() and (not folder.is_dir() or _others_in(folder)):
        raise UsageError(f"{folder} holds something else", fix=fix)


def _others_in(folder: Path) -> bool:
    ours = {folder / path for path in (wire.RESULT, wire.EVIDENCE)}
    if read_regular(folder / _CLOSED, len(_NO_REPOSITORY)) == _NO_REPOSITORY:
        ours.add(folder / _CLOSED)
    try:
        earlier = wire.parse_result(read_regular(folder / wire.RESULT, wire.MAX_RESULT))
        ours |= {folder / file.path for file in earlier.files}
    except VerificationError:
        ours.clear()
    return any(path not in ours and not path.is_dir() for path in folder.rglob("*"))
