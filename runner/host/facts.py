"""Properties of the host, for results: enough to tell two machines apart, and nothing secret."""

import hashlib
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bridge.common import environment, host
from bridge.errors import ProcessError
from bridge.system import git
from bridge.system.process import run
from runner.host.interpreter import Interpreter

_PACKAGES = ("mlx", "mlx-lm", "numpy")


def describe_host() -> dict[str, Any]:
    """Return the platform and a fingerprint that stays the same through reboots and updates."""
    return {
        "os": platform.system(),
        "os_version": platform.mac_ver()[0] or platform.release(),
        "arch": platform.machine(),
        "cpus": host.cores(),
        "memory_bytes": host.memory_bytes(),
        "fingerprint": "sha256:" + hashlib.sha256(f"kakeya-host:{_machine_id()}".encode()).hexdigest(),
    }


def describe_versions(interpreter: Interpreter) -> dict[str, str | None]:
    """Return the versions of this program, of git, and of packages that jobs import now."""
    ours = {"kakeya_bridge": version("kakeya-bridge"), "git": ".".join(map(str, git.version()))}
    try:
        installed = interpreter.versions_of(*_PACKAGES)
    except ProcessError:
        installed = dict.fromkeys(("python", *_PACKAGES))
    return {**ours, **{name.replace("-", "_"): value for name, value in installed.items()}}


def _machine_id() -> str:
    for path in (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id")):
        if path.exists() and (text := path.read_text(encoding="ascii", errors="replace").strip()):
            return text
    if platform.system() == "Darwin":
        argv = ("/usr/sbin/ioreg", "-rd1", "-c", "IOPlatformExpertDevice")
        for line in run(*argv, env=environment.for_isolated_git(), timeout=30).text.splitlines():
            if "IOPlatformUUID" in line:
                return line.split('"')[-2]
    return platform.node()
