"""The files of an answer as they lie on its branch: found without reading one, hashed and copied in pieces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from bridge import limits
from bridge.bus import objects, trees, wire
from bridge.bus.wire import Result
from bridge.errors import VerificationError
from bridge.system.git import Git

_PIECE = 1 << 20


@dataclass(frozen=True)
class Blob:
    """A stored file."""

    oid: str
    size: int


@dataclass(frozen=True)
class Contents:
    """Everything that lies in the folders of an answer, by path. `others` are not regular files."""

    git: Git
    files: dict[str, Blob]
    others: frozenset[str]
    _digests: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, git: Git, commit: str, result: Result) -> Contents:
        """Look at what lies there. Raises VerificationError where an answer brings more than a reader takes."""
        there = {
            path: node
            for folder in (wire.FOLDER, wire.REPORTS)
            for path, node in trees.files_below(git, commit, folder).items()
        }
        sizes = objects.sizes(git, [node.oid for node in there.values() if node.is_file])
        files = {
            path: Blob(node.oid, sizes[node.oid])
            for path, node in there.items()
            if node.is_file and node.oid in sizes
        }
        found = cls(git, files, frozenset(there.keys() - files.keys()))
        found._check(result)
        return found

    def _check(self, result: Result) -> None:
        if len(result.files) > limits.ANSWER_FILES:
            raise VerificationError(f"it lists {len(result.files)} files; {limits.ANSWER_FILES} are the most")
        listed = [self.files[file.path] for file in result.files if file.path in self.files]
        too_large = [blob for blob in listed if blob.size > wire.MAX_FILE]
        if too_large:
            raise VerificationError(f"one of its files is larger than {wire.MAX_FILE >> 20} MiB")
        if sum(blob.size for blob in listed) > limits.ANSWER_BYTES:
            raise VerificationError(f"its files together are larger than {limits.ANSWER_BYTES >> 20} MiB")

    def digests(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the SHA-256 of those of the files that are there. Each stored file is read once."""
        there = {path: self.files[path].oid for path in paths if path in self.files}
        new = [oid for oid in dict.fromkeys(there.values()) if oid not in self._digests]
        for oid, pieces in self._pieces(new):
            digest = hashlib.sha256()
            for piece in pieces:
                digest.update(piece)
            self._digests[oid] = digest.hexdigest()
        return {path: self._digests[oid] for path, oid in there.items()}

    def read(self, paths: Iterable[str], most: int) -> dict[str, bytes]:
        """Return the contents of those of the files that are there and fit into `most` bytes together."""
        chosen: dict[str, str] = {}
        for path in paths:
            blob = self.files.get(path)
            if blob and blob.size <= most:
                most -= blob.size
                chosen[path] = blob.oid
        read = {oid: b"".join(pieces) for oid, pieces in self._pieces(list(dict.fromkeys(chosen.values())))}
        return {path: read[oid] for path, oid in chosen.items()}

    def copies(self, paths: Iterable[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield files with their contents in pieces, to be read before the next one is asked for."""
        wanted = [path for path in paths if path in self.files]
        found = self._pieces([self.files[path].oid for path in wanted])
        for path, (_, pieces) in zip(wanted, found, strict=True):
            yield path, pieces

    def _pieces(self, oids: list[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
        with closing(objects.Reader(self.git)) as reader:
            for oid in oids:
                yield oid, reader.pieces(oid, _PIECE)
