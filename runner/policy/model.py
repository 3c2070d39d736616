"""The settings that a host decides: the sections of its policy and their bounds. docs/policy.md describes each."""

import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from bridge.bus import branch_names
from bridge.bus.hosts import address
from bridge.bus.wire import Name
from bridge.common import environment
from bridge.common.limits import PRESENCE_LABELS
from bridge.common.validation.hostfile import FEWEST_RANKS, MOST_RANKS
from bridge.presets.model import EnvName, EnvValue, Preset

_WORKFLOW = Annotated[
    str, StringConstraints(pattern=r"^\.github/workflows/[A-Za-z0-9._-]+@refs/heads/[A-Za-z0-9._/*-]+$")
]
_VERSION = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9a-z]+){1,2}$")]
_PATTERN = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*(?:/|-)\*")

# An IPv6 address has brackets.
_LFS_HOST = r"^([a-z0-9][a-z0-9.-]{0,252}|\[[0-9a-f:.]{2,45}\])(:[0-9]{1,5})?$"

# No longer than a file's name.
_MODEL_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,254}")
_LONGEST_LEASE_S = 900.0

INTERPRETER = "KAKEYA_MAC_PYTHON"
CLUSTER, CLUSTER_BACKEND = "KAKEYA_CLUSTER", "KAKEYA_CLUSTER_BACKEND"


class _Section(BaseModel):
    # Strict, because YAML reads a plain `yes` as true, which would count as 1.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


def _without_nul(path: Path) -> Path:
    if "\0" in str(path):
        raise ValueError("a path holds a NUL character")
    return path


def _absolute(path: Path) -> Path:
    if not (path := environment.expand(path)).is_absolute():
        raise ValueError(f"{path} must be an absolute path")
    return path


def default_state() -> Path:
    """Return the state folder of a policy that names none."""
    return environment.state_home() / "runner"


_File = Annotated[Path, Field(strict=False), AfterValidator(_without_nul)]
# With ``~`` expanded.
_WholePath = Annotated[_File, AfterValidator(_absolute)]


class Bus(_Section):
    """The git remote of the bus, and how often it may be used."""

    url: Annotated[str, Field(min_length=1)]
    patterns: Annotated[list[str], Field(min_length=1)] = list(branch_names.DEFAULT_PATTERNS)
    # Branches of agents' sessions, such as claude/*, from which requests are forwarded.
    forward: Annotated[list[str], Field(max_length=32)] = []
    # File with the token for an HTTPS remote. The token is passed only to git, in its environment.
    token_file: _File | None = None
    poll_s: Annotated[float, Field(ge=0.05, le=3600)] | None = None
    idle_poll_s: Annotated[float, Field(ge=0.05, le=3600)] | None = None
    pushes_per_minute: Annotated[int, Field(ge=1, le=6000)] | None = None
    lease_s: Annotated[float, Field(ge=1, le=86_400)] = 120.0
    max_lease_s: Annotated[float, Field(ge=1, le=86_400)] | None = None

    # Whether answers are noted beside their commits, at refs/notes/kakeya.
    notes: bool = False
    presence_s: Annotated[float, Field(ge=1, le=7200)] | None = 300.0

    @field_validator("patterns", "forward")
    @classmethod
    def _patterns_are_prefixes(cls, value: list[str]) -> list[str]:
        for pattern in value:
            if not _PATTERN.fullmatch(pattern) or ".." in pattern:
                raise ValueError(f"{pattern!r} must be a prefix that ends in /* or -*, such as mac-bridge/*")
        return value

    @field_validator("url")
    @classmethod
    def _url_is_of_a_known_kind(cls, value: str) -> str:
        parts = address.parse(value)
        fault = "it holds a control character" if not value.isprintable() else parts.fault
        if fault:
            raise ValueError(f"{value!r} is not the address of a repository: {fault}")
        # Servers also accept a token as the user name, and git would show it in the list of processes.
        if parts.password or (parts.user and parts.is_web):
            raise ValueError("the URL holds a user or a password; put it into token_file")
        return value

    @property
    def is_local(self) -> bool:
        """Return whether the bus is a folder on this machine."""
        return address.parse(self.url).is_local

    @property
    def longest_lease_s(self) -> float:
        """Longest lease that is respected. A claim's own value is not trusted: anyone who can push can write one."""
        return max(self.lease_s, self.max_lease_s or _LONGEST_LEASE_S)

    @property
    def poll(self) -> tuple[float, float]:
        """The shortest and the longest pause between polls, in seconds."""
        shortest = self.poll_s or (0.1 if self.is_local else 2.0)
        return shortest, max(shortest, self.idle_poll_s or (0.2 if self.is_local else 15.0))

    @property
    def budget(self) -> int:
        """Pushes allowed per minute. GitHub documents six per repository, and any folder may be served by a host."""
        return self.pushes_per_minute or 6


class Trust(_Section):
    """Whose code may run."""

    code_request: Literal["deny", "signed", "allow"] = "deny"
    # A file in OpenSSH's format (ssh-keygen(1), ALLOWED SIGNERS), which is read again for each decision.
    allowed_signers: _WholePath | None = None
    unapproved: Literal["refuse", "hold"] = "refuse"
    repositories: list[str] = []
    runners: list[_WholePath] = []


class Actions(_Section):
    """Which jobs GitHub may start here; ``kakeya-runner hook`` checks them."""

    repository: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$")]
    # Workflows as PATH@REF; in REF, `*` matches anything.
    workflows: Annotated[list[_WORKFLOW], Field(min_length=1)]
    events: Annotated[list[str], Field(min_length=1)] = ["push"]
    branches: Annotated[list[str], Field(min_length=1)] | None = None
    # The SHA-256 of each accepted workflow file. Without it, whoever may push to REF can change the file.
    workflow_sha256: list[Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]] = []
    # Folders below which a workflow's variables may name models.
    models: list[_WholePath] = []


class Retention(_Section):
    """How long answered requests stay on the bus. Those that are too old, or too many, are archived and deleted."""

    days: Annotated[float, Field(gt=0, le=3650)] | None = None
    keep: Annotated[int, Field(ge=1)] | None = None
    archive: _WholePath | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "Retention":
        if self.days is None and self.keep is None:
            raise ValueError("needs days, keep or both")
        return self


class Lfs(_Section):
    """Limits for Git LFS files of jobs that run the request's tree. Without this section, none are fetched."""

    file_mb: Annotated[int, Field(ge=1, le=1_048_576)] = 2_048
    total_mb: Annotated[int, Field(ge=1, le=1_048_576)] = 8_192
    files: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    timeout_s: Annotated[int, Field(ge=1, le=7_200)] = 600
    # Other servers to which the bus may refer for the files. This host sends them no secret.
    hosts: list[Annotated[str, StringConstraints(pattern=_LFS_HOST)]] = []


class Cluster(_Section):
    """The machines over which jobs may split one model. This host starts a rank on each, and answers for all."""

    # A file for mlx.launch, with the interpreter and the environment of each host; or a number of ranks here.
    hostfile: _WholePath | None = None
    ranks: Annotated[int, Field(ge=FEWEST_RANKS, le=MOST_RANKS)] | None = None
    backend: Literal["ring", "jaccl"] = "ring"
    # Names of presets that may use it.
    presets: Annotated[list[str], Field(min_length=1)] = ["distributed-*"]

    @model_validator(mode="after")
    def _names_its_ranks(self) -> "Cluster":
        if (self.hostfile is None) == (self.ranks is None):
            raise ValueError("needs either hostfile or ranks")
        if self.ranks is not None and self.backend != "ring":
            raise ValueError("ranks on one machine use the backend ring")
        return self

    def allows(self, preset: str) -> bool:
        """Return whether a preset may use the cluster."""
        return any(fnmatchcase(preset, pattern) for pattern in self.presets)

    @property
    def settings(self) -> dict[str, str]:
        """The values by which presets reach it."""
        where = str(self.ranks) if self.hostfile is None else str(self.hostfile)
        return {CLUSTER: where, CLUSTER_BACKEND: self.backend}


class Quota(_Section):
    """Quota of one requester on this host. Requests beyond it wait; none is refused."""

    waiting: Annotated[int, Field(ge=1)] = 100
    per_hour: Annotated[int, Field(ge=1)] | None = None


class Limits(_Section):
    """Limits for every job, whatever its preset allows."""

    timeout_s: Annotated[int, Field(ge=1, le=24 * 3600)] = 4 * 3600
    grace_s: Annotated[float, Field(ge=0.1, le=300)] = 5.0
    log_mb: Annotated[float, Field(gt=0, le=64)] = 4.0
    memory_mb: Annotated[int, Field(ge=16)] | None = None
    processes: Annotated[int, Field(ge=4)] = 4_096
    disk_mb: Annotated[int, Field(ge=1)] = 65_536
    files: Annotated[int, Field(ge=16)] = 1_000_000
    keep_free_mb: Annotated[int, Field(ge=0)] = 512
    keep_memory_mb: Annotated[int, Field(ge=0)] = 128
    tree_mb: Annotated[int, Field(ge=1, le=65_536)] = 2_048
    tree_files: Annotated[int, Field(ge=1, le=10_000_000)] = 200_000
    attempts: Annotated[int, Field(ge=1, le=10)] = 3
    max_age_s: Annotated[int, Field(ge=60)] = 7 * 24 * 3600
    clock_skew_s: Annotated[int, Field(ge=0, le=86_400)] = 300
    per_requester: Quota = Quota()


class Policy(_Section):
    """The whole policy."""

    schema_version: Literal[1]
    id: Name = "runner"
    labels: Annotated[list[Name], Field(max_length=PRESENCE_LABELS)] = []
    bus: Bus
    state: _WholePath = Field(default_factory=default_state)
    presets: list[str] = ["*"]
    # Priorities of presets by pattern. If several patterns match, the highest priority counts; other presets
    # have 0.
    priority: Annotated[dict[str, Annotated[int, Field(ge=-100, le=100)]], Field(max_length=100)] = {}
    preset_folder: _WholePath | None = None
    interpreter: _WholePath = Path(sys.executable)
    interpreter_version: _VERSION | None = None
    env: dict[EnvName, EnvValue] = {}
    trust: Trust = Trust()
    actions: Actions | None = None
    retention: Retention | None = None
    lfs: Lfs | None = None
    cluster: Cluster | None = None
    sandbox: Literal["auto", "require", "off"] = "auto"
    limits: Limits = Limits()
    on_stop: Literal["hand_back", "finish"] = "hand_back"

    @field_validator("sandbox", mode="before")
    @classmethod
    def _off_is_a_word(cls, value: object) -> object:
        """Accept false for "off": YAML reads a plain ``off`` as false."""
        return "off" if value is False else value

    def allows(self, preset: str) -> bool:
        """Return whether a preset may run on this host."""
        return any(fnmatchcase(preset, pattern) for pattern in self.presets)

    def priority_of(self, preset: str) -> int:
        """Return the priority of a preset's requests on this host."""
        return max(
            (number for pattern, number in self.priority.items() if fnmatchcase(preset, pattern)), default=0
        )

    @property
    def archive(self) -> Path:
        """The repository to which answered requests are archived before they are deleted."""
        return (self.retention and self.retention.archive) or self.state / "archive.git"

    @property
    def settings(self) -> dict[str, str]:
        """The values for ``${ENV:NAME}`` in presets. A fetched model is given as its folder: a job's HOME hides it."""
        own = {k: _model_folder(v) for k, v in self.env.items()} | (
            self.cluster.settings if self.cluster else {}
        )
        return {INTERPRETER: str(self.interpreter)} | own

    def refused_by(self, preset: Preset) -> str | None:
        """Return the field that would have to name a preset for it to run here, if one does not."""
        if not self.allows(preset.name):
            return "presets"
        may_use = self.cluster is None or self.cluster.allows(preset.name) or CLUSTER not in preset.env_names
        return None if may_use else "cluster.presets"


def _model_folder(value: str) -> str:
    """Return the folder of a model that this user has fetched, if a value is its name; otherwise the value."""
    folder = environment.fetched_model(value)
    return str(folder) if _MODEL_NAME.fullmatch(value) and folder.is_dir() else value
