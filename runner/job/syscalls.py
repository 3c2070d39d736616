"""The system calls that a job in bubblewrap's sandbox may make: a seccomp filter, built without a library.

Some kernel objects are outside all namespaces, and some memory is invisible to every memory limit. A job that computes
needs neither. ``syscalls.txt`` lists the calls that it needs; of some of them, only some arguments are allowed.

The filter is classic BPF, as seccomp(2) describes. Refused calls fail with EPERM, as if a privilege were missing, and
calls that are newer than the list with ENOSYS, as on an older kernel.
"""

import errno
import platform
import struct
from collections.abc import Iterable
from pathlib import Path

# Placeholder in the argv prefix that the supervisor replaces by the filter's descriptor.
PLACEHOLDER = "{filter}"

_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
_LOAD, _EQUAL, _ATLEAST, _ABOVE, _MASK, _RETURN = 0x20, 0x15, 0x35, 0x25, 0x45, 0x06
_NR, _ARCH, _FIRST, _SECOND = 0, 4, 16, 24
_X32 = 0x40000000

# For each machine name: the architecture's id, and the column of its numbers in the list.
_MACHINES = {"x86_64": (0xC000003E, 1), "aarch64": (0xC00000B7, 2), "riscv64": (0xC00000F3, 2)}

_CLONE_NEWUSER = 0x10000000
_PR_SET_DUMPABLE = 4
_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
# The commands of fcntl except F_SETLEASE and F_NOTIFY: a lease makes other programs wait when they open the
# file.
_COMMANDS = (*range(12), 15, 16, 36, 37, 38, 1025, 1027, 1028, *range(1030, 1041))
_TERMINAL = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX fake terminal input


def job_filter() -> bytes | None:
    """Return the filter for this machine, or None if its system call numbers are not listed here."""
    machine = platform.machine()
    if machine not in _MACHINES:
        return None
    arch, column = _MACHINES[machine]
    numbers = _numbers(column)
    # A program of another architecture, such as a 32-bit one, uses other call numbers.
    code = [_step(_LOAD, _ARCH), _step(_EQUAL, arch, 1, 0), _step(_RETURN, _KILL), _step(_LOAD, _NR)]
    if machine == "x86_64":
        code += [_step(_ATLEAST, _X32, 0, 1), _step(_RETURN, _EPERM)]
    # The flags of clone3 are in memory, which a filter cannot read. C libraries fall back to clone.
    code += [_step(_EQUAL, 435, 0, 1), _step(_RETURN, _ENOSYS)]
    no_users = [_step(_MASK, _CLONE_NEWUSER, 0, 1), _step(_RETURN, _EPERM)]
    for name in ("clone", "unshare"):
        code += _where(numbers[name], _FIRST, no_users)
    # The memory of a process that hides from inspection could not be measured.
    code += _where(numbers["prctl"], _FIRST, _refuse([_PR_SET_DUMPABLE]))
    # Other address families bypass the network namespace, such as AF_VSOCK, which reaches a virtual machine's host.
    code += _where(numbers["socket"], _FIRST, _allow_only(_FAMILIES))
    code += _where(numbers["fcntl"], _SECOND, _allow_only(_COMMANDS))
    code += _where(numbers["ioctl"], _SECOND, _refuse(_TERMINAL))
    for number in sorted(numbers.values()):
        code += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _ALLOW)]
    code += [_step(_ABOVE, max(numbers.values()), 0, 1), _step(_RETURN, _ENOSYS), _step(_RETURN, _EPERM)]
    return b"".join(code)


def _numbers(column: int) -> dict[str, int]:
    """Return the numbers of the allowed system calls by name."""
    # Not by importlib.resources, with which the supervisor would take a third longer to start.
    text = Path(__file__).with_name("syscalls.txt").read_text(encoding="ascii")
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def _where(number: int, argument: int, steps: list[bytes]) -> list[bytes]:
    """Return instructions that only one system call executes, after its given argument is loaded."""
    inner = [_step(_LOAD, argument), *steps, _step(_LOAD, _NR)]
    return [_step(_EQUAL, number, 0, len(inner)), *inner]


def _allow_only(values: Iterable[int]) -> list[bytes]:
    allowed = list(values)
    tests = [_step(_EQUAL, value, len(allowed) - i, 0) for i, value in enumerate(allowed)]
    return [*tests, _step(_RETURN, _EPERM)]


def _refuse(values: Iterable[int]) -> list[bytes]:
    return [step for value in values for step in (_step(_EQUAL, value, 0, 1), _step(_RETURN, _EPERM))]


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    """Return one instruction; ``then`` and ``otherwise`` say how many to skip."""
    return struct.pack("=HBBI", code, then, otherwise, value)
