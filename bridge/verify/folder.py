"""Verifies an answer in a folder that ``kakeya fetch`` wrote, with the same checks as on its branch."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bridge.bus import wire
from bridge.bus.wire import Result
from bridge.checklist import Check
from bridge.common import limits
from bridge.common.advice import Advice, command
from bridge.errors import UsageError
from bridge.presets import Preset
from bridge.system.local_files import read_regular
from bridge.verify.answer_checks import check_files, check_gaps, check_job, contradiction, own_paths
from bridge.verify.answer_files import check_bounds
from bridge.verify.check import Report
from bridge.verify.plausibility import check_times
from bridge.verify.public_keys import Pin
from bridge.verify.signature import check_signature

_FROM_FOLDER = "read from a folder: the branch it came on was not looked at"


@dataclass(frozen=True)
class FolderFiles:
    """The regular files of an answer below a folder, with their sizes. ``others`` includes links."""

    root: Path
    files: dict[str, int]
    others: frozenset[str]

    @classmethod
    def of(cls, root: Path) -> "FolderFiles":
        """List the files without reading them."""
        files, others = {}, set()
        for file in (path for folder in (wire.FOLDER, wire.REPORTS) for path in _below(root, folder)):
            path = file.relative_to(root).as_posix()
            if file.is_file() and not file.is_symlink():
                files[path] = file.stat().st_size
            else:
                others.add(path)
        return cls(root, files, frozenset(others))

    def digests(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the SHA-256 of the files that exist."""
        there = ((path, self._content(path)) for path in paths)
        return {path: hashlib.sha256(data).hexdigest() for path, data in there if data is not None}

    def read(self, paths: Iterable[str], most: int) -> dict[str, bytes]:
        """Return the contents of the files that exist and fit into ``most`` bytes together."""
        contents = {}
        for path in paths:
            if (data := self._content(path, most)) is not None:
                contents[path] = data
                most -= len(data)
        return contents

    def _content(self, path: str, most: int = wire.MAX_FILE) -> bytes | None:
        return read_regular(self.root / path, min(most, wire.MAX_FILE)) if path in self.files else None


def verify_folder(
    folder: Path, presets: Mapping[str, Preset], pin: Pin | None
) -> tuple[Result, Report, dict[str, bytes]]:
    """Check the answer in a folder. Returns its result, the checks, and its files as far as they fit into memory.

    Facts that only the branch has (that the request came first, and its content) are not checked.

    Raises:
        UsageError: the folder has no answer.
        VerificationError: its result cannot be read or it exceeds the limits for readers.
    """
    content = read_regular(folder / wire.RESULT, wire.MAX_RESULT)
    if content is None:
        fix = Advice("Name a folder that ", command("fetch"), " wrote.")
        raise UsageError(f"{folder} holds no answer", fix=fix)
    result = wire.parse_result(content)
    files = FolderFiles.of(folder)
    check_bounds(result, files.files)
    conflict = contradiction(result)
    job, gate = check_job(result.preset, result, files, presets) if result.preset else ([], None)
    checks = [
        Check("answer", ok=False if conflict else None, message=conflict or _FROM_FOLDER),
        check_files(result, files, _others(result, files)),
        *job,
        *check_gaps(result),
        check_times(result),
        check_signature(files, result, pin, lambda _signed: (), unseen=(wire.REQUEST,)),
    ]
    listed = [file.path for file in result.files if wire.is_answer_path(file.path)]
    report = Report(result.branch, "", result, checks, gate)
    return result, report, files.read(listed, limits.REPORTS_BYTES)


def _others(result: Result, files: FolderFiles) -> Iterator[str]:
    """Yield a fault for each report that the answer does not list. On a branch, such a file may be the workload's."""
    reports = (path for path in {*files.files, *files.others} if path.startswith(f"{wire.REPORTS}/"))
    yield from (f"{path} is not part of the answer" for path in sorted({*reports} - own_paths(result)))


def _below(root: Path, folder: str) -> Iterator[Path]:
    """Yield all entries below a folder that are not folders, including links to folders. Links are not followed."""
    current = root
    for part in folder.split("/"):
        current /= part
        if current.is_symlink():
            yield current
            return
    for base, folders, names in os.walk(current):
        yield from (Path(base) / name for name in names)
        yield from (path for name in folders if (path := Path(base) / name).is_symlink())
