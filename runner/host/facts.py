"""Properties of the host, for results: enough to tell two machines apart, and nothing secret."""

from __future__ import annotations

import hashlib
import json
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bridge.common import environment, host
from bridge.errors import ProcessError
from bridge.system import git
from bridge.system.process import run

_PACKAGES = ("mlx", "mlx-lm", "numpy")
_ASK = (
    "import json,sys,platform,importlib.metadata as m\n"
    "def v(n):\n"
    "    try: return m.version(n)\n"
    "    except m.PackageNotFoundError: return None\n"
    "print(json.dumps({'python': platform.python_version(), **{n: v(n) for n in sys.argv[1:]}}))\n"
)


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


@cache  # computed once per process: the answer does not change while it runs
def describe_versions(interpreter: Path) -> dict[str, str | None]:
    """Return the versions of this program, of git, and of packages of the jobs' interpreter."""
    ours = {"kakeya_bridge": version("kakeya-bridge"), "git": ".".join(map(str, git.version()))}
    try:
        argv = (str(interpreter), "-I", "-c", _ASK, *_PACKAGES)
        versions = json.loads(run(*argv, env={"LC_ALL": "C.UTF-8"}, timeout=60).stdout)
    except (ProcessError, ValueError):
        versions = {"python": None, **dict.fromkeys(_PACKAGES)}
    return ours | {name.replace("-", "_"): value for name, value in versions.items()}


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
