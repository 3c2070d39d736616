"""The hosts of a job, and the command that starts a rank on each."""

import random
import shlex
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from bridge.common import install
from bridge.common.validation import describe, hostfile
from engine.errors import BadInput, MissingPackage

RANK = "engine.cluster.rank"
# Below the ports that systems give to outgoing connections.
_PORTS = range(20000, 32000)
_TRIES = 50


@dataclass(frozen=True)
class Cluster:
    """Ranks on hosts, and how they talk."""

    hosts: hostfile.Hostfile
    file: Path | None = None  # the file that names them; None: all are on this machine

    def __len__(self) -> int:
        return len(self.hosts.hosts)

    def name(self, rank: int) -> str:
        """Return a rank's name in messages."""
        host = self.hosts.hosts[rank]
        return f"rank {rank}" if host.is_local else f"rank {rank} ({host.ssh})"

    def interpreter(self, rank: int) -> str:
        """Return the interpreter that runs a rank on its host."""
        host = self.hosts.hosts[rank]
        return host.python or (sys.executable if host.is_local else "python3")

    def command(self, supervisor: int) -> list[str]:
        """Return the command that starts the launcher, which starts all ranks."""
        argv = [_launcher(), "--backend", self.hosts.backend, "--starting-port", str(self._port())]
        if self.file is None:
            argv += ["--hosts", hostfile.LOCAL, "--repeat-hosts", str(len(self))]
        else:
            argv += ["--hostfile", str(self.file)]
        return [*argv, "--", "/bin/sh", "-c", self._start(), "rank", str(supervisor)]

    def _start(self) -> str:
        """Return the program that starts a rank: it selects interpreter and environment by the rank's number."""
        lines = []
        for rank, host in enumerate(self.hosts.hosts):
            python = self.interpreter(rank)
            env = "".join(f"export {name}={shlex.quote(value)}; " for name, value in host.env.items())
            lines.append(f'{rank}) {env}exec {shlex.quote(python)} -P -m {RANK} "$@";;')
        return f'case "$MLX_RANK" in {" ".join(lines)} esac'

    def _port(self) -> int:
        """Return a first port after which each rank's port is free here, so that jobs do not collide."""
        count = len(self) * max(1, *(len(host.ips) for host in self.hosts.hosts))
        for _ in range(_TRIES):
            first = random.choice(range(_PORTS.start, _PORTS.stop - count, count))  # noqa: S311 - not a secret
            if all(map(_is_free, range(first, first + count))):
                break
        return first


def local(ranks: int) -> Cluster:
    """Return a cluster of ranks on this machine."""
    return Cluster(hostfile.local(ranks))


def read_hostfile(path: Path) -> Cluster:
    """Return the cluster that a file describes.

    Raises:
        BadInput: it cannot be read, or is not a hostfile.
    """
    try:
        return Cluster(hostfile.read(path), path.absolute())
    except ValueError as error:
        fix = "write it as docs/policy.md shows, or let `mlx.distributed_config` write it"
        raise BadInput(f"the hostfile cannot be used: {error}", fix) from error


def choose(cluster: int | Path, backend: str | None = None) -> Cluster:
    """Return a number of ranks on this machine, or the cluster of a hostfile, with this backend.

    Raises:
        BadInput: the file cannot be read, or does not fit the backend.
    """
    chosen = local(cluster) if isinstance(cluster, int) else read_hostfile(cluster)
    if backend in (None, chosen.hosts.backend):
        return chosen
    try:
        hosts = hostfile.Hostfile.model_validate({**chosen.hosts.model_dump(), "backend": backend})
    except ValidationError as error:
        reason = describe(error, hostfile.Hostfile, {})[0]
        raise BadInput(
            f"the hosts cannot use {backend}: {reason}", "leave out --backend, or complete the hostfile"
        ) from error
    return Cluster(hosts, chosen.file)


def _launcher() -> str:
    """Return the path of ``mlx.launch``, which is installed beside the interpreter."""
    beside = Path(sys.executable).with_name("mlx.launch")
    launcher = str(beside) if beside.is_file() else shutil.which("mlx.launch")
    if launcher is None:
        raise MissingPackage("mlx.launch, which starts the ranks, is not installed", install.how())
    return launcher


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((hostfile.LOCAL, port))
        except OSError:
            return False
    return True
