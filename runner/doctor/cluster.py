"""For ``check``: whether each host of the cluster can start a rank, and whether all ranks reach each other."""

import re
from collections.abc import Iterator

from bridge.checklist import Check
from bridge.common import environment
from bridge.common.validation import hostfile
from bridge.common.validation.hostfile import LOCAL, Host, Hostfile
from bridge.errors import ProcessError
from bridge.system.process import run
from runner.policy import Policy
from runner.policy.model import Cluster

_HOST_S, _TRY_S = 30, 120
_VERSIONS = "mlx", "mlx-lm", "kakeya-bridge"
_LOOK = (
    "import importlib.metadata as m, mlx.core, mlx_lm, engine.cluster.rank; "
    f"print('versions', *(m.version(name) for name in {_VERSIONS!r}))"
)
_ANSWER = re.compile(r"^versions (\S+ \S+ \S+)$", re.MULTILINE)
_NAME = "cluster"


def check_cluster(policy: Policy, *, sandboxed: bool) -> Iterator[Check]:
    """Yield a check for each host, and one for sums over all ranks; nothing without a cluster."""
    if policy.cluster is None:
        return
    try:
        hosts = _hosts(policy.cluster)
    except ValueError as error:
        yield Check(_NAME, ok=False, message=str(error), fix="Correct the file that cluster.hostfile names.")
        return
    remote = [host for host in hosts.hosts if not host.is_local]
    if remote and sandboxed:
        fix = "Set `sandbox: off` on this host: a confined job sees no SSH keys."
        yield Check(_NAME, ok=False, message="ranks on other hosts are started by ssh", fix=fix)
    answers = {host.ssh: (_look(host, policy), host) for host in hosts.hosts}
    for (versions, problem), host in answers.values():
        message = f"{host.ssh}: {versions}" if versions else f"{host.ssh}: {problem}"
        yield Check(_NAME, versions is not None, message, _fix(host))
    known = {versions for (versions, _), _ in answers.values()}
    if None in known:
        return
    if len(known) > 1:
        fix = "Install the same versions on all hosts: other versions may decode other tokens."
        yield Check(_NAME, ok=None, message="the hosts have different versions", fix=fix)
    yield _sum(policy)


def _hosts(cluster: Cluster) -> Hostfile:
    if cluster.hostfile is None:
        return hostfile.local(cluster.ranks or 0)
    hosts = hostfile.read(cluster.hostfile)
    return Hostfile.model_validate({**hosts.model_dump(), "backend": cluster.backend})


def _look(host: Host, policy: Policy) -> tuple[str | None, str]:
    """Return the versions on a host, or None and what is wrong."""
    python = host.python or (str(policy.interpreter) if host.is_local else "python3")
    argv = [python, "-P", "-c", _LOOK]
    if not host.is_local:
        quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in argv)
        argv = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", host.ssh, quoted]
    try:
        done = run(
            *argv, env=environment.for_ranks(1), timeout=_HOST_S, check=False, own_session=True, most=1 << 20
        )
    except ProcessError as error:
        return None, error.message
    match = _ANSWER.search(done.text)
    if match:
        return ", ".join(
            f"{name} {version}" for name, version in zip(_VERSIONS, match[1].split(), strict=True)
        ), ""
    lines = done.stderr.decode(errors="replace").strip().split("\n")
    return None, lines[-1][:300] or f"exit code {done.returncode}"


def _fix(host: Host) -> str:
    if host.ssh == LOCAL:
        return "Install the package with its engine for this interpreter."
    return f"Make `ssh {host.ssh} true` work without a password, and name an interpreter with the engine as `python`."


def _sum(policy: Policy) -> Check:
    """Sum over all ranks, as the preset distributed-probe does."""
    cluster = policy.cluster
    assert cluster is not None  # noqa: S101 - the caller has one
    where, backend = cluster.settings.values()
    argv = [str(policy.interpreter), "-P", "-m", "engine", "bench", "all-reduce", "--cluster", where]
    argv += ["--backend", backend, "--sizes", "4096", "--repeats", "3", "--json"]
    try:
        done = run(
            *argv, env=environment.for_ranks(1), timeout=_TRY_S, check=False, own_session=True, most=1 << 20
        )
    except ProcessError as error:
        return Check(_NAME, ok=False, message=error.message, fix="See which host does not answer.")
    if done.returncode == 0:
        return Check(_NAME, ok=True, message="all ranks were started and summed an array")
    lines = [line.strip() for line in done.stderr.decode(errors="replace").strip().split("\n")]
    at = next((i for i, line in enumerate(lines) if line.startswith("error")), len(lines) - 1)
    fix = lines[at + 1] if at + 1 < len(lines) else "Run `kakeya-engine bench all-reduce` here."
    return Check(_NAME, ok=False, message=lines[at].removeprefix("error: ")[:500], fix=fix[:500])
