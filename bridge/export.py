"""Writing an answer's files to disk, once they are known to hold together."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bridge import objects, wire
from bridge.errors import UsageError, VerificationError
from bridge.git import Git
from bridge.history import View
from bridge.verify import MAX_FILE, Report
from bridge.wire import Result


@dataclass(frozen=True)
class Fetched:
    """An answer on disk."""

    folder: Path
    files: list[Path]
    result: Result
    report: Report


@dataclass(frozen=True)
class Answer:
    """An answer in memory, whether it holds or not; files that are missing are not among its files."""

    report: Report
    files: dict[str, bytes]


def read_answer(git: Git, view: View, report: Report) -> Answer:
    """Read every file of an answer that is there."""
    listed = report.result.files if report.result else ()
    paths = [file.path for file in listed if wire.is_answer_path(file.path)]
    blobs = objects.read_many(git, [f"{view.tip}:{path}" for path in paths], max_bytes=MAX_FILE)
    return Answer(report, {path: blob for path, blob in zip(paths, blobs, strict=True) if blob is not None})


def write_answer(git: Git, view: View, report: Report, out: Path | str | None) -> Fetched:
    """Write every file of an answer below `out`, all or none. An earlier fetch into the same folder is replaced.

    Raises VerificationError where the answer does not hold, UsageError where `out` holds something else.
    """
    if report.result is None or not report.holds:
        wrong = "; ".join(f"{check.name}: {check.message}" for check in report.checks if check.ok is False)
        raise VerificationError(f"nothing was written: {wrong}", fix=f"See: kakeya verify {view.branch}")
    result = report.result
    folder = (
        Path(out)
        if out
        else Path("kakeya-results") / f"{result.preset or 'request'}-{result.nonce or view.tip[:12]}"
    )
    if _others_in(folder):
        raise UsageError(
            f"{folder} holds something else",
            fix="Name an empty folder, or one of an earlier fetch, with --out.",
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    apart = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        paths = [wire.RESULT, *(file.path for file in result.files)]
        if objects.list_tree(git, view.tip, wire.EVIDENCE):
            paths.append(wire.EVIDENCE)
        for path in paths:
            _write(git, view.tip, path, apart)
        if folder.exists():
            shutil.rmtree(folder)
        apart.chmod(0o755)
        apart.rename(folder)
    except BaseException:
        shutil.rmtree(apart, ignore_errors=True)
        raise
    return Fetched(folder, [folder / path for path in paths], result, report)


def _others_in(folder: Path) -> list[Path]:
    """Return the files in a folder that no earlier fetch wrote there."""
    if not folder.is_dir():
        return [folder] if folder.exists() else []
    try:
        earlier = wire.parse_result((folder / wire.RESULT).read_bytes())
    except (OSError, VerificationError):
        return list(folder.iterdir())
    ours = {folder / path for path in (wire.RESULT, *(file.path for file in earlier.files))}
    return [path for path in folder.rglob("*") if path not in ours and not path.is_dir()]


def _write(git: Git, commit: str, path: str, root: Path) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(objects.read_blob(git, commit, path, max_bytes=MAX_FILE) or b"")
