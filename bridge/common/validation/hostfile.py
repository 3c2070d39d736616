"""The hosts of a cluster: a file in the format of ``mlx.launch``, with the interpreter and environment of each host.

``mlx.launch`` ignores the two keys that are ours, ``python`` and ``env``.
"""

import json
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from bridge.common.validation import describe

FEWEST_RANKS, MOST_RANKS = 2, 64
LOCAL = "127.0.0.1"
_MOST_BYTES = 1 << 20

# A name that ssh does not read as an option.
SshName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_\[][A-Za-z0-9_.@:\[\]%-]{0,252}$")]
Address = Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f][0-9A-Fa-f.:]{1,44}$")]
Interpreter = Annotated[str, StringConstraints(pattern=r"^/[^\x00\n]+$", max_length=1024)]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
VariableValue = Annotated[str, StringConstraints(pattern=r"^[^\x00\n]*$", max_length=4096)]
Device = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
Backend = Literal["ring", "jaccl"]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Host(_Strict):
    """One rank: where it runs, and with what."""

    ssh: SshName
    ips: Annotated[tuple[Address, ...], Field(max_length=16)] = ()
    rdma: Annotated[tuple[Device | tuple[Device, ...] | None, ...], Field(max_length=MOST_RANKS)] = ()
    python: Interpreter | None = None
    env: Annotated[dict[VariableName, VariableValue], Field(max_length=64)] = {}

    @property
    def is_local(self) -> bool:
        """Whether the launcher starts the rank without ssh."""
        return self.ssh == LOCAL


class Hostfile(_Strict):
    """The ranks, in order."""

    backend: Backend = "ring"
    envs: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    hosts: Annotated[tuple[Host, ...], Field(min_length=FEWEST_RANKS, max_length=MOST_RANKS)]

    @model_validator(mode="after")
    def _can_start(self) -> Self:
        for rank, host in enumerate(self.hosts):
            if not host.ips and (self.backend == "ring" or rank == 0):
                raise ValueError(
                    f"hosts.{rank} ({host.ssh}) has no ips: list an address that the others reach"
                )
            if self.backend == "jaccl" and len(host.rdma) != len(self.hosts):
                raise ValueError(
                    f"hosts.{rank} ({host.ssh}) lists {len(host.rdma)} rdma devices, not one a host"
                )
            if self.backend == "jaccl" and host.rdma[rank] is not None:
                raise ValueError(f"hosts.{rank} ({host.ssh}) has an rdma device for itself: write null there")
        return self


def read(path: Path) -> Hostfile:
    """Return the hosts in a file.

    Raises:
        ValueError: it cannot be read, or is not a hostfile; the message says where.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    if len(text) > _MOST_BYTES:
        raise ValueError(f"{path} is larger than 1 MiB")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON") from error
    document = {"hosts": value} if isinstance(value, list) else value
    try:
        return Hostfile.model_validate(document)
    except ValidationError as error:
        raise ValueError(f"{path}: {describe(error, Hostfile, document)[0]}") from error


def local(ranks: int) -> Hostfile:
    """Return ranks on this machine alone."""
    return Hostfile(hosts=tuple(Host(ssh=LOCAL, ips=(LOCAL,)) for _ in range(ranks)))
