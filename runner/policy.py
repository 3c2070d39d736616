"""What this host allows: one YAML file, outside every repository, that no request can reach."""

from __future__ import annotations

import json
import platform
import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from bridge.bus import branch_names
from bridge.errors import PolicyError
from bridge.manifest import describe
from bridge.presets import ENV_LONGEST, ENV_VALUE
from bridge.system import environment
from bridge.system.strict_yaml import read_yaml
from runner.ownership import check_files_owned, check_owned

_ENV_VALUE = Annotated[str, StringConstraints(max_length=ENV_LONGEST, pattern=ENV_VALUE)]
_ENV_NAME = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")]
_WORKFLOW = Annotated[
    str, StringConstraints(pattern=r"^\.github/workflows/[A-Za-z0-9._-]+@refs/heads/[A-Za-z0-9._/*-]+$")
]
_PATTERN = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*(?:/|-)\*")

_LONGEST_LEASE_S = 900.0

INTERPRETER = "KAKEYA_MAC_PYTHON"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _whole(path: Path | None) -> Path | None:
    """Return a path with `~` resolved. Raises ValueError where it is not absolute."""
    if path is None:
        return None
    if "\0" in str(path):
        raise ValueError("a path holds a NUL character")
    if not (path := path.expanduser()).is_absolute():
        raise ValueError(f"{path} must be an absolute path")
    return path


class Bus(_Section):
    """The git remote that is served, and how hard it may be worked."""

    url: Annotated[str, Field(min_length=1)]
    patterns: Annotated[list[str], Field(min_length=1)] = list(branch_names.DEFAULT_PATTERNS)
    # A file with the token for an HTTPS remote. It is handed to git in the environment, and to nothing else.
    token_file: Path | None = None
    poll_s: Annotated[float, Field(ge=0.05, le=3600)] | None = None
    idle_poll_s: Annotated[float, Field(ge=0.05, le=3600)] | None = None
    pushes_per_minute: Annotated[int, Field(ge=1, le=6000)] | None = None
    lease_s: Annotated[float, Field(ge=1, le=86_400)] = 120.0
    # The longest lease of another runner that is waited for; by default 15 minutes, or `lease_s` if that is longer.
    max_lease_s: Annotated[float, Field(ge=1, le=86_400)] | None = None

    @field_validator("token_file")
    @classmethod
    def _path_holds_no_nul(cls, value: Path | None) -> Path | None:
        if value and "\0" in str(value):
            raise ValueError("the path holds a NUL character")
        return value

    @field_validator("patterns")
    @classmethod
    def _patterns_are_prefixes(cls, value: list[str]) -> list[str]:
        for pattern in value:
            if not _PATTERN.fullmatch(pattern) or ".." in pattern:
                raise ValueError(f"{pattern!r} must be a prefix that ends in /* or -*, such as mac-bridge/*")
        return value

    @field_validator("url")
    @classmethod
    def _url_is_of_a_known_kind(cls, value: str) -> str:
        parts = urlsplit(value)
        dashed = value.startswith("-") or (parts.hostname or "").startswith("-")
        if dashed or "::" in value or not value.isprintable():
            raise ValueError(f"{value!r} is not the address of a repository")
        # A token is taken as a user's name too, and git would show it to everyone who lists processes.
        if parts.password or (parts.username and parts.scheme in ("http", "https")):
            raise ValueError("the URL holds a user or a password; put it into token_file")
        return value

    @property
    def is_local(self) -> bool:
        """Say whether the bus is a folder on this machine."""
        return self.url.startswith(("/", "./", "../", "file://"))

    @property
    def longest_lease_s(self) -> float:
        """How long a claim is waited for, whatever it says of itself: anyone who can push can write one."""
        return max(self.lease_s, self.max_lease_s or _LONGEST_LEASE_S)

    @property
    def poll(self) -> tuple[float, float]:
        """The shortest and the longest pause between polls, in seconds."""
        shortest = self.poll_s or (0.1 if self.is_local else 2.0)
        return shortest, max(shortest, self.idle_poll_s or (0.5 if self.is_local else 15.0))

    @property
    def budget(self) -> int:
        """How many pushes a minute are allowed. GitHub documents six a repository."""
        return self.pushes_per_minute or (600 if self.is_local else 6)


class Trust(_Section):
    """Whose code may run."""

    # `deny`: presets that run the requester's code are refused. `signed`: they are run where somebody on the list below
    # signed the request, or the operator approved it. `allow`: whoever can push can run code here.
    code_request: Literal["deny", "signed", "allow"] = "deny"
    # OpenSSH's format (ssh-keygen(1), ALLOWED SIGNERS). It is read anew at each decision.
    allowed_signers: Path | None = None
    # Under `signed`, what becomes of a request that nobody vouches for: an answer, or a place to wait in.
    unapproved: Literal["refuse", "hold"] = "refuse"
    # Under which names, beside that in bus.url, requesters know the bus, such as github.com/owner/name.
    repositories: list[str] = []
    # Public key files of the runners that serve this bus. If there are any, states that none of these keys, nor this
    # runner's own, signed are ignored.
    runners: list[Path] = []

    @field_validator("allowed_signers")
    @classmethod
    def _path_is_whole(cls, value: Path | None) -> Path | None:
        return _whole(value)

    @field_validator("runners")
    @classmethod
    def _paths_are_whole(cls, value: list[Path]) -> list[Path]:
        return [whole for path in value if (whole := _whole(path))]


class Actions(_Section):
    """Which jobs GitHub may start here: what `kakeya-runner hook` holds them against."""

    repository: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$")]
    # PATH@REF; in REF `*` stands for anything.
    workflows: Annotated[list[_WORKFLOW], Field(min_length=1)]
    events: Annotated[list[str], Field(min_length=1)] = ["push"]
    # By default `bus.patterns`.
    branches: Annotated[list[str], Field(min_length=1)] | None = None
    # The SHA-256 of each accepted workflow file. Without it, whoever may push to REF decides what stands in it.
    workflow_sha256: list[Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]] = []


class Retention(_Section):
    """How long answered requests stay on the bus: one that is older, or not among the newest, is archived and goes."""

    days: Annotated[float, Field(gt=0, le=3650)] | None = None
    keep: Annotated[int, Field(ge=1)] | None = None
    # By default `archive.git` in the state folder.
    archive: Path | None = None

    @field_validator("archive")
    @classmethod
    def _path_is_whole(cls, value: Path | None) -> Path | None:
        return _whole(value)

    @model_validator(mode="after")
    def _says_something(self) -> Retention:
        if self.days is None and self.keep is None:
            raise ValueError("needs days, keep or both")
        return self


class Lfs(_Section):
    """Files that Git LFS keeps, fetched for jobs that run a request's tree. Without this section none are."""

    file_mb: Annotated[int, Field(ge=1, le=1_048_576)] = 2_048
    total_mb: Annotated[int, Field(ge=1, le=1_048_576)] = 8_192
    files: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    timeout_s: Annotated[int, Field(ge=1, le=7_200)] = 600
    # Other servers, as HOST or HOST:PORT, from which the bus's server may say that files are to be fetched. They see
    # no secret of this host.
    hosts: list[Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,252}(:[0-9]{1,5})?$")]] = []


class Quota(_Section):
    """What one requester may ask of this host. More of it waits; nothing is refused for it."""

    # How many requests are considered at once.
    waiting: Annotated[int, Field(ge=1)] = 100
    # How many are taken up in an hour; by default as many as there are.
    per_hour: Annotated[int, Field(ge=1)] | None = None


class Limits(_Section):
    """Bounds that hold for every job, whatever its preset says."""

    timeout_s: Annotated[int, Field(ge=1, le=24 * 3600)] = 4 * 3600
    grace_s: Annotated[float, Field(ge=0.1, le=300)] = 5.0
    log_mb: Annotated[float, Field(gt=0, le=64)] = 4.0
    memory_mb: Annotated[int, Field(ge=16)] | None = None
    processes: Annotated[int, Field(ge=4)] = 4_096
    disk_mb: Annotated[int, Field(ge=1)] = 65_536
    files: Annotated[int, Field(ge=16)] = 1_000_000
    keep_free_mb: Annotated[int, Field(ge=0)] = 512
    # Of the host's memory, on Linux.
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
    id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = "runner"
    labels: list[str] = []
    bus: Bus
    state: Path = Field(default_factory=lambda: environment.state_home() / "runner")
    presets: list[str] = ["*"]
    preset_folder: Path | None = None
    interpreter: Path = Path(sys.executable)
    interpreter_version: Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9a-z]+){1,2}$")] | None = (
        None
    )
    env: dict[_ENV_NAME, _ENV_VALUE] = {}
    trust: Trust = Trust()
    actions: Actions | None = None
    retention: Retention | None = None
    lfs: Lfs | None = None
    # `auto`: the sandbox that this host has. `require`: none, no runner. `off`: jobs see what this user sees.
    sandbox: Literal["auto", "require", "off"] = "auto"
    limits: Limits = Limits()
    on_stop: Literal["hand_back", "finish"] = "hand_back"

    @field_validator("sandbox", mode="before")
    @classmethod
    def _off_is_a_word(cls, value: object) -> object:
        """YAML reads a plain `off` as false."""
        return "off" if value is False else value

    @field_validator("state", "interpreter", "preset_folder")
    @classmethod
    def _paths_are_whole(cls, value: Path | None) -> Path | None:
        return _whole(value)

    def allows(self, preset: str) -> bool:
        """Say whether a preset may be run on this host."""
        return any(fnmatchcase(preset, pattern) for pattern in self.presets)

    @property
    def archive(self) -> Path:
        """Where answered requests go before they leave the bus."""
        return (self.retention and self.retention.archive) or self.state / "archive.git"

    @property
    def settings(self) -> dict[str, str]:
        """The values for `${ENV:NAME}` in presets."""
        return {INTERPRETER: str(self.interpreter), **self.env}


def default_path() -> Path:
    """Return where the policy is looked for: KAKEYA_RUNNER_POLICY, else the user's configuration folder."""
    named = environment.get("KAKEYA_RUNNER_POLICY")
    return Path(named) if named else environment.config_home() / "runner.yaml"


def load_policy(path: Path | None = None) -> Policy:
    """Read the policy.

    Raises PolicyError, which names the file and what is wrong, where it is missing or not valid, or where others may
    change it, the presets or where the state lies.
    """
    path = path or default_path()
    if not path.exists():
        named = "" if path == default_path() else f"--policy {path} "
        fix = f"Write one: kakeya-runner {named}init --bus URL"
        raise PolicyError(f"there is no policy at {path}: without one nothing is run", fix=fix)
    check_owned(path, "the policy")
    try:
        policy = Policy.model_validate(read_yaml(path, PolicyError))
    except ValidationError as error:
        fix = "docs/operations.md describes every key."
        raise PolicyError(f"{path}: {describe(error)[0]}", fix=fix) from error
    check_owned(policy.state.parent, "the state folder")
    if policy.preset_folder:
        check_files_owned(policy.preset_folder, "*.yaml", "the presets")
    for key in policy.trust.runners:
        check_owned(key, "the list of runners' keys")
    return policy


TEMPLATE = """\
# What this host runs for others. docs/operations.md describes every key.
schema_version: 1
id: {id}
labels: [{labels}]
bus:
  url: {url}
  # An HTTPS remote needs a token that may push; an SSH remote uses the keys of the user who runs the runner.
  # token_file: ~/.config/kakeya/token
presets: ["*"]            # names of presets, * stands for anything
trust:
  code_request: deny      # "signed": for those on a list; "allow": everyone who can push runs code on this host
sandbox: auto             # "require" runs nothing on a host where jobs cannot be confined
interpreter: {interpreter}
interpreter_version: {version}   # jobs are refused under another one; "3.13" allows every 3.13.x
env:                      # values for ${{ENV:NAME}} in presets
  # The model and its drafter: folders, ids on the Hugging Face hub, or "tiny", a small pair in the engine's sources.
  KAKEYA_MAC_VERIFIER_PATH: tiny
  KAKEYA_MAC_DRAFTER_ID: tiny
"""


def write_template(
    path: Path,
    url: str,
    runner_id: str | None = None,
    *,
    interpreter: Path | None = None,
    version: str | None = None,
) -> None:
    """Write a commented policy. Raises PolicyError where one exists already or the URL is none that is served."""
    if path.exists():
        raise PolicyError(f"{path} exists already", fix="Edit it, or name another file with --policy.")
    try:
        Bus(url=url)
    except ValidationError as error:
        raise PolicyError(f"nothing was written: {describe(error)[0]}") from error
    name = (
        re.sub(r"[^A-Za-z0-9._-]", "-", runner_id or platform.node() or "runner").strip("-.")[:64] or "runner"
    )
    labels = ", ".join(
        [platform.system().replace("Darwin", "macOS"), platform.machine().replace("arm64", "ARM64")]
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    # A JSON text is a YAML text, whatever stands in it.
    quoted = {
        "url": json.dumps(url),
        "interpreter": json.dumps(str(interpreter or sys.executable)),
        "version": json.dumps(version or platform.python_version()),
    }
    text = TEMPLATE.format(id=name, labels=labels, **quoted)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
