"""Records each sweep in this clone before its first request, so that an interrupted sweep can continue.

The records are files of the git folder. References would not do: those of a mirror follow its remote.
"""

import hashlib
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bridge.common import strict_json
from bridge.common.whole_files import atomic_write
from bridge.errors import InfrastructureError
from bridge.presets.points import MOST_POINTS
from bridge.requests.answered.reuse import Reused
from bridge.requests.groups.names import GROUP, Place
from bridge.system.git import Git
from bridge.system.local_files import read_regular

FOLDER = "kakeya-groups"
_MOST_BYTES = 1 << 20
# How many of the newest records are searched for an interrupted sweep.
_MOST_SEARCHED = 200


class Plan(BaseModel):
    """The requests of a group: one for each point, and their common settings."""

    model_config = ConfigDict(frozen=True, strict=True, defer_build=True)

    group: Annotated[str, Field(pattern=rf"^{GROUP.pattern}$")]
    # Whether the id follows from an idempotency key.
    is_keyed: bool
    # The name or URL of the bus's remote.
    remote: str
    # The digest of the sweep's content, and the time of its start, in Unix seconds.
    digest: str
    made_at: float
    preset: str
    # All parameters of each point with the defaults, and the names of those that differ between the points.
    points: Annotated[list[dict[str, bool | int | str]], Field(min_length=1, max_length=MOST_POINTS)]
    swept: list[str]
    ref: str
    snapshot: bool
    against: str | None
    workload: str
    baseline: str | None
    lifetime_s: float
    labels: list[str]
    requested_by: str
    sign: bool
    on_branch: str | None
    # By each point's index: the branch of its request, or the earlier answer that replaces the request.
    sent: dict[str, str] = {}
    taken: dict[str, Reused] = {}
    # Whether the same command continues this sweep, and whether the sweep is cancelled.
    is_open: bool = True
    is_cancelled: bool = False

    def place(self, index: int) -> Place:
        """Return the place of a point."""
        return Place(self.group, index, len(self.points))

    def branch(self, index: int) -> str | None:
        """Return the branch of a point, or of the earlier answer that replaces it; None if it was not sent."""
        earlier = self.taken.get(str(index))
        return earlier.branch if earlier else self.sent.get(str(index))

    @property
    def unsent(self) -> list[int]:
        """The indices of the points that were not sent."""
        return [index for index in range(len(self.points)) if self.branch(index) is None]


def digest_of(content: dict[str, Any]) -> str:
    """Return the digest of a sweep's full content."""
    return hashlib.sha256(strict_json.dumps(content).encode()).hexdigest()


@dataclass(frozen=True)
class Plans:
    """The records of the sweeps that were started in this clone."""

    git: Git

    @property
    def folder(self) -> Path:
        """The folder of the records."""
        return Path(self.git.text("rev-parse", "--path-format=absolute", "--git-common-dir")) / FOLDER

    def read(self, group: str) -> Plan | None:
        """Return a group's record; None if it is missing or unreadable."""
        return _read(self.folder / f"{group}.json") if GROUP.fullmatch(group) else None

    def write(self, plan: Plan) -> None:
        """Write a record.

        Raises:
            InfrastructureError: it cannot be written.
        """
        folder = self.folder
        try:
            folder.mkdir(exist_ok=True)
            with atomic_write(folder / f"{plan.group}.json") as part:
                part.write_text(strict_json.dumps(plan.model_dump()), "utf-8")
        except OSError as error:
            raise InfrastructureError(f"cannot write into {folder}: {error.strerror}") from error

    def change(self, group: str, **fields: object) -> None:
        """Change fields of a record, if there is one."""
        if plan := self.read(group):
            self.write(plan.model_copy(update=fields))

    def find_open(self, digest: str) -> Plan | None:
        """Return the newest interrupted sweep with the same content, if there is one."""
        plans = (plan for plan in self._newest() if plan.is_open and plan.digest == digest)
        return max(plans, key=lambda plan: plan.made_at, default=None)

    def _newest(self) -> Iterator[Plan]:
        files = sorted(self._files(), key=_changed_at, reverse=True)
        yield from filter(None, map(_read, files[:_MOST_SEARCHED]))

    def _files(self) -> list[Path]:
        with suppress(OSError):
            return [*self.folder.glob("*.json")]
        return []

    def remove(self, group: str) -> None:
        """Remove a record."""
        with suppress(OSError):
            (self.folder / f"{group}.json").unlink()

    def remove_before(self, seconds: float) -> None:
        """Remove the records that were last written before a time, in Unix seconds."""
        for file in self._files():
            if _changed_at(file) < seconds:
                with suppress(OSError):
                    file.unlink()


def _changed_at(file: Path) -> float:
    with suppress(OSError):
        return file.stat().st_mtime
    return time.time()


def _read(file: Path) -> Plan | None:
    data = read_regular(file, _MOST_BYTES)
    if data is None:
        return None
    try:
        return Plan.model_validate_json(data)
    except ValidationError:
        return None
