"""Stores a clone's last copy of a bus's ``.kakeya/`` in the clone, for times when the remote does not answer."""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from bridge.common import limits
from bridge.system import local_files
from bridge.system.git import Git

# Each byte takes up to six in JSON, and paths and reasons take some more.
_MOST_BYTES = 6 * limits.BUS_FOLDER_BYTES + 1_000_000


class FolderCopy(BaseModel):
    """``.kakeya/`` in one commit. The texts of files are their bytes as Latin-1, so that JSON can hold any of them."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    branch: str
    commit: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
    # When the commit was made, by its maker's clock, and when the default branch was seen at it, in Unix
    # seconds.
    made_at: float
    seen_at: float
    files: Annotated[dict[str, str], Field(max_length=limits.BUS_FILES)]
    unread: Annotated[dict[str, str], Field(max_length=limits.BUS_FILES)]
    # Whether schemas beside presets were read too. Earlier versions left them out.
    has_schemas: bool = False

    @classmethod
    def of(
        cls, branch: str, commit: str, made_at: float, seen_at: float,
        files: Mapping[str, bytes], unread: Mapping[str, str],
    ) -> "FolderCopy":  # fmt: skip
        """Return the copy of these files."""
        texts = {path: content.decode("latin-1") for path, content in files.items()}
        return cls(
            branch=branch,
            commit=commit,
            made_at=made_at,
            seen_at=seen_at,
            files=texts,
            unread=dict(unread),
            has_schemas=True,
        )

    @property
    def contents(self) -> dict[str, bytes]:
        """The content of each file by its path."""
        return {path: text.encode("latin-1", "replace") for path, text in self.files.items()}


def load(git: Git, url: str) -> FolderCopy | None:
    """Return the stored copy for a bus; None if there is none, or the file holds something else."""
    data = local_files.read_regular(_path(git, url), _MOST_BYTES)
    if data is None:
        return None
    try:
        return FolderCopy.model_validate_json(data)
    except ValidationError:
        return None


def store(git: Git, url: str, copy: FolderCopy) -> None:
    """Replace the stored copy for a bus. If the repository is read-only, nothing changes."""
    with suppress(OSError):
        local_files.replace(_path(git, url), copy.model_dump_json(ensure_ascii=True))


def _path(git: Git, url: str) -> Path:
    folder = git.text("rev-parse", "--path-format=absolute", "--git-common-dir")
    return Path(folder) / f"kakeya-bus-{hashlib.sha256(url.encode('utf-8', 'replace')).hexdigest()[:16]}.json"
