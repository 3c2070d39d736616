"""The files of an answer on its branch: lists them without reading, and hashes and copies them in pieces."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bridge.bus import objects, trees, wire
from bridge.bus.history import RequestBranch
from bridge.bus.wire import Result
from bridge.common import limits
from bridge.common.advice import step
from bridge.errors import VerificationError
from bridge.system.git import Git
from bridge.system.git_output import ObjectInfo

_PIECE = 1 << 20


class Files(Protocol):
    """The regular files of an answer by path, on a branch or in a folder. ``others`` are links and the like."""

    @property
    def files(self) -> Mapping[str, object]: ...  # noqa: D102
    @property
    def others(self) -> Collection[str]: ...  # noqa: D102
    def digests(self, paths: Iterable[str]) -> dict[str, str]: ...  # noqa: D102
    def read(self, paths: Iterable[str], most: int) -> dict[str, bytes]: ...  # noqa: D102


@dataclass(frozen=True)
class Contents:
    """All entries in an answer's folders, by path. ``others`` are not regular files."""

    git: Git
    files: dict[str, ObjectInfo]
    others: frozenset[str]
    _digests: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, git: Git, commit: str, result: Result) -> "Contents":
        """List the files. An answer beyond the limits for readers is a VerificationError."""
        there = {
            path: node
            for folder in (wire.FOLDER, wire.REPORTS)
            for path, node in trees.files_below(git, commit, folder).items()
        }
        oids = {path: node.oid for path, node in there.items() if node.is_file}
        blobs = objects.locate(git, oids.values())
        files = {path: blobs[oid] for path, oid in oids.items() if oid in blobs}
        check_bounds(result, {path: blob.size for path, blob in files.items()})
        return cls(git, files, frozenset(there.keys() - files.keys()))

    def digests(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the SHA-256 of the files that exist. Each stored file is read once."""
        there = {path: self.files[path].oid for path in paths if path in self.files}
        new = [oid for oid in dict.fromkeys(there.values()) if oid not in self._digests]
        for oid, pieces in objects.each_in_pieces(self.git, new, _PIECE):
            digest = hashlib.sha256()
            for piece in pieces:
                digest.update(piece)
            self._digests[oid] = digest.hexdigest()
        return {path: self._digests[oid] for path, oid in there.items()}

    def read(self, paths: Iterable[str], most: int) -> dict[str, bytes]:
        """Return the contents of the files that exist and fit into ``most`` bytes together."""
        chosen: dict[str, str] = {}
        for path in paths:
            blob = self.files.get(path)
            if blob and blob.size <= most:
                most -= blob.size
                chosen[path] = blob.oid
        read = dict(objects.each_content(self.git, list(dict.fromkeys(chosen.values()))))
        return {path: read[oid] for path, oid in chosen.items()}

    def copies(self, paths: Iterable[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield files with their contents in pieces. Read each file before you ask for the next one."""
        wanted = [path for path in paths if path in self.files]
        read = objects.each_in_pieces(self.git, [self.files[path].oid for path in wanted], _PIECE)
        for path, (_, pieces) in zip(wanted, read, strict=True):
            yield path, pieces


def check_bounds(result: Result, sizes: Mapping[str, int]) -> None:
    """Raise VerificationError if an answer exceeds the limits for readers, by the sizes that it lists."""
    listed = [sizes[file.path] for file in result.files if file.path in sizes]
    if any(size > wire.MAX_FILE for size in listed):
        raise VerificationError(f"one of its files is larger than {wire.MAX_FILE >> 20} MiB")
    if sum(listed) > limits.ANSWER_BYTES:
        raise VerificationError(f"its files together are larger than {limits.ANSWER_BYTES >> 20} MiB")


def read_result(git: Git, branch: RequestBranch) -> Result:
    """Return a finished request's result. A missing or invalid one is a VerificationError."""
    if not branch.current_state.is_final:
        message = f"{branch.name} has no answer yet: it is {branch.current_state}"
        raise VerificationError(message, fix=step("Wait for it", "wait", branch.name))
    return wire.parse_result(objects.read_blob(git, branch.tip, wire.RESULT, max_bytes=wire.MAX_RESULT))
