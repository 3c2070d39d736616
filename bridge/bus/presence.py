"""The wire format of a runner's presence record, which each runner pushes to a reference of its own.

The reference is outside of ``refs/heads/``, so it is no branch, and clones, older clients and runners do not see it. It
points to a commit without parents whose tree holds two or three files. No decision about what runs depends on it.
"""

import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints

from bridge.bus import branch_names, wire
from bridge.bus.wire import Name, PresetName, Sentence, WireFile
from bridge.common import limits

# One reference for each state folder of a runner, named by that folder's id.
REFS = "refs/kakeya-runners/"
FILE = "runner.json"
# Fields that were added later: older readers refuse a ``runner.json`` with fields that they do not know.
DETAILS = "details.json"
DETAILS_BYTES = 4096
# The definitions of presets that requesters may lack. The file is missing if there are none.
PRESETS = "presets.json"

# A record counts for this many intervals between records, so that a runner may lose one record.
VALID_INTERVALS = 2.4

_INSTANCE = re.compile(r"[0-9a-f]{16}")
_Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
_Pattern = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._/-]{1,250}\*$")]


class RunnerState(StrEnum):
    """Whether a runner takes requests."""

    SERVING = "serving"
    # The runner finishes its job and exits.
    DRAINING = "draining"
    # The runner stays alive and takes no requests.
    MAINTENANCE = "maintenance"
    STOPPED = "stopped"


def _is_branch(value: str) -> str:
    if not branch_names.is_safe(value):
        raise ValueError("is not a branch's name")
    return value


def _is_time(value: str) -> str:
    _seconds(value)
    return value


def _seconds(text: str) -> float:
    """Return the Unix time of a text such as 2026-01-31T12:00:00Z; any other is a ValueError."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()


class Quota(WireFile):
    """A requester's quota: how many requests are considered at once, and started per hour (None: no limit)."""

    waiting: Annotated[int, Field(ge=1, le=limits.COUNTER)]
    per_hour: Annotated[int, Field(ge=1, le=limits.COUNTER)] | None = None


class Presence(WireFile):
    """``runner.json``: the state of one runner at ``at``, by its own clock."""

    schema_version: Literal[1]
    id: Name
    # The id of the runner's state folder, which is also the last part of the reference.
    instance: Annotated[str, StringConstraints(pattern=rf"^{_INSTANCE.pattern}$")]
    version: Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z.+_-]{1,32}$")]
    state: Annotated[RunnerState, Field(strict=False)]
    # The operator's reason, if the runner is not serving; if the runner serves, the fault that keeps it from
    # working.
    reason: Annotated[Sentence, Field(max_length=limits.PRESENCE_REASON)] = ""
    # The request that the runner works on.
    busy_with: Annotated[str, AfterValidator(_is_branch)] | None = None
    labels: Annotated[list[Name], Field(max_length=limits.PRESENCE_LABELS)] = Field(default_factory=list)
    # The presets that the runner's policy allows, with their digests. None: too many to list.
    presets: Annotated[dict[PresetName, _Digest], Field(max_length=limits.PRESENCE_PRESETS)] | None = None
    # Patterns of the branches that the runner serves. None: too many to list.
    patterns: Annotated[list[_Pattern], Field(max_length=limits.PRESENCE_LABELS)] | None = None
    quota: Quota | None = None
    at: Annotated[str, Field(max_length=20), AfterValidator(_is_time)]
    # If no newer record comes for this many seconds, the runner may be gone.
    valid_s: Annotated[float, Field(gt=0, le=limits.PRESENCE_VALID_S)]

    @property
    def ref(self) -> str:
        """The only reference on which this record counts."""
        return f"{REFS}{self.instance}"

    @property
    def at_s(self) -> float:
        """When the record was written, in Unix seconds of the runner's clock."""
        return _seconds(self.at)

    def serves(self, branch: str) -> bool:
        """Return whether a branch matches one of the runner's patterns."""
        return self.patterns is None or branch_names.matches(branch, self.patterns)


class Details(WireFile):
    """``details.json``: more about the runner. Fields of later versions are ignored."""

    model_config = ConfigDict(extra="ignore")

    # The longest pause between two polls, in seconds.
    poll_s: Annotated[float, Field(gt=0, le=limits.PRESENCE_VALID_S)]
    # Whether the runner gives some presets priority over others.
    has_priorities: bool = False
    # Whether its machine runs the jobs of other buses too, one job at a time.
    has_other_buses: bool = False


def is_ref(name: str) -> bool:
    """Return whether a reference may hold a record."""
    return name.startswith(REFS) and _INSTANCE.fullmatch(name.removeprefix(REFS)) is not None


def parse(data: bytes | None, ref: str) -> Presence | None:
    """Read the record on a reference. Returns None if it is malformed or belongs to another runner."""
    presence = wire.parse(Presence, data, limits.PRESENCE_BYTES)
    return presence if presence and presence.ref == ref else None


def parse_details(data: bytes | None) -> Details | None:
    """Read the details of a record. Returns None if they are malformed, or if an earlier version wrote the record."""
    return wire.parse(Details, data, DETAILS_BYTES)
