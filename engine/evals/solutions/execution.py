"""Runs code that a model wrote, in a process of its own. Only a confined process may do that.

The new process has limits on time, memory, files and processes. They are not a sandbox. The sandbox around the whole
job keeps the code from the machine and the network, and ``check_confined`` raises an error without it.
"""

import ctypes
import os
import pwd
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bridge.common.process import answer
from engine.errors import EngineError

CPU_S, WALL_S, MEMORY_BYTES = 5, 15.0, 1 << 30
_CHILD = Path(__file__).with_name("child.py")
# An address that belongs to nobody (RFC 5737). No packet is sent: connecting only shows whether there is a route.
_FAR = ("192.0.2.1", 9)
_FIX = "run it through a runner, which confines its jobs: kakeya measure pass-at-1 --out DIR"


class Result(NamedTuple):
    """The result of a solution. ``error`` is the exception's name, or says that there was no result."""

    passed: bool
    error: str | None


def run_tests(module: str) -> Result:
    """Run a module that ends with its tests."""
    with tempfile.TemporaryDirectory() as folder:
        argv = (sys.executable, "-I", "-S", str(_CHILD), str(CPU_S), str(MEMORY_BYTES), folder)
        outcome = answer(*argv, env={}, text=module, timeout=WALL_S)
    if outcome == "passed":
        return Result(passed=True, error=None)
    return Result(passed=False, error=outcome.removeprefix("error ")[:100] if outcome else "no result")


def check_confined() -> None:
    """Check that this process cannot harm the machine.

    Raises:
        EngineError: it can do something that a model's code must not do.
    """
    ability = next(abilities(), None)
    if ability is not None:
        raise EngineError(f"this would run code that a model wrote, and this process {ability}", _FIX)


def abilities() -> Iterator[str]:
    """Yield the abilities of this process that a model's code must not have."""
    if sys.platform == "linux":
        wanted = {"NoNewPrivs": 1, "Seccomp": 2, "CapEff": 0}
        status = dict(
            line.split(":", 1)
            for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines()
        )
        if any(int(status.get(name, "-1"), 16) != value for name, value in wanted.items()):
            yield "is in no sandbox"
    elif sys.platform == "darwin":
        if ctypes.CDLL(None).sandbox_check(os.getpid(), None, 0) != 1:
            yield "is in no sandbox"
    else:
        yield "is on a system whose sandbox is not known"
    for folder in (_home(), "/", "/etc", "/var/tmp", str(Path(__file__).parent)):  # noqa: S108
        if os.access(folder, os.W_OK):
            yield f"can write to {folder}"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        if probe.connect_ex(_FAR) == 0:
            yield "reaches the network"


def _home() -> str:
    """Return the user's home as the system knows it, because a job's environment names another folder."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a user without an entry, as in some containers
        return "/"
