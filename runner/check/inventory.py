"""The host's properties for ``kakeya-runner check``: hardware, versions, and the paths that the policy names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bridge.checks import Check
from bridge.errors import InfrastructureError
from runner.context import RunnerContext
from runner.host.facts import describe_host, describe_versions
from runner.host.interpreter import Interpreter
from runner.policy import Policy
from runner.upkeep.name_conflicts import find_conflicts

_POINTER = b"version https://git-lfs"
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.npz")


def inventory(policy: Policy) -> Iterator[Check]:
    """Yield the host, the versions, and each setting of the policy that is a path."""
    host = describe_host()
    memory = host["memory_bytes"] / (1 << 30)
    shape = f"{host['os']} {host['os_version']}, {host['arch']}, {host['cpus']} cores, {memory:.0f} GiB"
    yield Check("host", ok=True, message=shape)
    versions = describe_versions(Interpreter(policy.interpreter))
    known = [f"{name} {value}" for name, value in versions.items() if value]
    yield Check("versions", ok=True, message=", ".join(known))
    for name, value in policy.env.items():
        if value.startswith(("/", "~")):
            yield _location(name, value)


def _location(name: str, value: str) -> Check:
    """Check that a path setting exists, and that its files are not Git LFS pointers."""
    path = Path(value)
    if value.startswith("~"):
        fix = f"Write {path.expanduser()} in the policy, because jobs have another home folder."
        return Check("setting", None, f"{name}: {value} is not an absolute path", fix)
    if not path.exists():
        return Check(
            "setting",
            None,
            f"{name}: {path} does not exist",
            f"Create it on this machine, or change env.{name} in the policy.",
        )
    files = [path] if path.is_file() else [file for glob in _WEIGHTS for file in sorted(path.glob(glob))]
    pointers = [file.name for file in files if _is_pointer(file)]
    if pointers:
        fix = f"Fetch the file: git -C {path if path.is_dir() else path.parent} lfs pull"
        return Check("setting", None, f"{name}: {pointers[0]} is a Git LFS pointer, not the file itself", fix)
    return Check("setting", ok=True, message=f"{name}: {path}")


def _is_pointer(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(len(_POINTER)) == _POINTER


def way_is_free(context: RunnerContext) -> Check:
    """Check whether a branch name on the bus blocks requests."""
    try:
        conflicts = find_conflicts(context.bus)
    except InfrastructureError as error:
        return Check("squatting", None, error.message, "See the line `bus` above.")
    if conflicts.message:
        ok = False if conflicts.blocking else None
        return Check("squatting", ok, conflicts.message, conflicts.fix)
    return Check("squatting", ok=True, message="no branch name blocks new requests")
