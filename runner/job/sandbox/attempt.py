"""The self-test that runs inside a sandbox: it tries things that must fail, and then things that must succeed.

The jobs' interpreter runs it from its source text, so it uses only the standard library. Its arguments are a file of
the runner, a loopback port and an abstract socket on which the runner listens, the runner's process id, and the
runner's namespaces as JSON. It prints what it could do. Any other error ends it, and counts as a fault of the sandbox.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

LINUX = sys.platform == "linux"
_CLONE_NEWUSER = 0x10000000
_GET_KEYRING, _SESSION_KEYRING = 0, -3
_KEYCTL, _ADD_KEY, _IO_SETUP = range(3)  # the order of their numbers
_NUMBERS = {"x86_64": (250, 248, 206), "aarch64": (219, 217, 0), "riscv64": (219, 217, 0)}
_KEY = tuple(map(ctypes.c_char_p, (b"user", b"probe", b"x")))  # type, description, payload
_CONTEXT = ctypes.byref(ctypes.c_ulong())
_MEMFD_SECRET, _PTRACE_SEIZE = 447, 0x4206
_MOST_SHOWN = 3


def main() -> None:
    """Try everything and print the results as JSON."""
    canary, port, abstract, runner = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    forbidden: dict[str, Callable[[], object]] = {
        "read a file of the runner's": canary.read_bytes,
        "see a file of the runner's": canary.lstat,
        "reach a port on this machine": lambda: socket.create_connection(("127.0.0.1", port), 5).close(),
        "signal the runner": lambda: os.kill(runner, 0),
    }
    if LINUX:
        forbidden |= {
            "reach an abstract socket of this machine": lambda: _connect(f"\0{abstract}"),
            "reach the machine below this one": lambda: socket.socket(socket.AF_VSOCK).close(),
            "make a key in the user's keyring": lambda: _numbered(_ADD_KEY, *_KEY, ctypes.c_size_t(1), -2),
            "read the user's keyrings": lambda: _numbered(_KEYCTL, _GET_KEYRING, _SESSION_KEYRING, 0),
            "make namespaces of its own": lambda: _call("unshare", _CLONE_NEWUSER),
            "keep memory that belongs to no process": lambda: _call("shmget", 0, 4096, 0o600),
            "take a lease on a file": _take_lease,
            "use up the machine's contexts of asynchronous I/O": lambda: _numbered(_IO_SETUP, 1, _CONTEXT),
            "keep memory that no limit counts": lambda: _call("syscall", _MEMFD_SECRET, 0),
            "trace the sandbox's first process": lambda: _call("ptrace", _PTRACE_SEIZE, 1, 0, 0),
            "use up the user's watches of files": lambda: _call("inotify_init1", 0),
            "hide from being looked at": lambda: _call("prctl", 4, 0, 0, 0, 0),
            "read the machine's memory": lambda: _first("/proc/kcore"),
            "read the kernel's messages": lambda: _first("/proc/kmsg"),
        }
    needed: dict[str, Callable[[], object]] = {
        "write into its folder": lambda: Path("probe").write_bytes(b"x"),
        "write into its home": lambda: (Path.home() / "probe").write_bytes(b"x"),
        "write into its temporary folder": lambda: (Path.home() / "tmp" / "probe").write_bytes(b"x"),
    }
    # The folder may exist in the sandbox as an empty copy. The runner checks from outside whether the file arrived.
    _works(lambda: canary.with_name(canary.name + "-written").write_bytes(b""))
    could = [name for name, act in forbidden.items() if _works(act)]
    if LINUX:
        could += [f"write to {path}" for path in islice(writable_files(), _MOST_SHOWN)]
        could += [f"share {name} with the runner" for name in _shared(json.loads(sys.argv[5]))]
        could += [f"use privileges ({line})" for line in _privileges()]
    could_not = [name for name, act in needed.items() if not _works(act)]
    print(json.dumps({"could": could, "could_not": could_not}))


def _works(act: Callable[[], object]) -> bool:
    try:
        act()
    except OSError:
        return False
    return True


def _connect(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)


def _call(name: str, *args: object) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*args) < 0:
        raise OSError(ctypes.get_errno(), name)


def _numbered(call: int, *args: object) -> None:
    _call("syscall", _NUMBERS[os.uname().machine][call], *args)


def _take_lease() -> None:
    path = Path("probe-lease")
    path.write_bytes(b"x")
    with path.open("rb") as file:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)


def _first(path: str) -> None:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:  # noqa: PTH123
        if not file.read(1):
            raise OSError(0, "it is empty")


def writable_files() -> Iterator[str]:
    """Yield each kernel file that can be opened for writing."""
    folders = ["/proc", "/sys"]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:
            continue
        for entry in entries:
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except OSError:  # a process that ended meanwhile
                continue
            if stat.S_ISDIR(mode):
                folders.append(entry.path)
            elif stat.S_ISREG(mode) and _works(partial(_open, entry.path)):
                yield entry.path


def _open(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW))


def _shared(theirs: dict[str, str]) -> Iterator[str]:
    """Yield the kinds of namespaces that this process shares with the runner."""
    for name, namespace in theirs.items():
        if os.readlink(f"/proc/self/ns/{name}") == namespace:  # noqa: PTH115 - it is no path
            yield f"its {name} namespace"


def _privileges() -> Iterator[str]:
    """Yield forbidden abilities of this process, as the kernel reports them."""
    wanted = {"CapInh": 0, "CapPrm": 0, "CapEff": 0, "CapBnd": 0, "CapAmb": 0, "NoNewPrivs": 1, "Seccomp": 2}
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name in wanted and int(value, 16) != wanted.pop(name):
            yield " ".join(line.split())
    yield from (f"{name} is not told" for name in wanted)


if __name__ == "__main__":
    main()
