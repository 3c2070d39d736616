"""The system calls that a job in bubblewrap's sandbox may not make: a seccomp filter, built without a library.

Some kernel objects are outside all namespaces, and some memory is invisible to every memory limit. A job that computes
needs neither. The filter is classic BPF, as seccomp(2) describes. Refused calls fail with EPERM, as if a privilege were
missing.
"""

from __future__ import annotations

import errno
import platform
import struct

# Placeholder in the argv prefix that the supervisor replaces by the filter's descriptor.
PLACEHOLDER = "{filter}"

_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _EQUAL, _ATLEAST, _MASK, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _ARG0 = 0, 4, 16
_X32 = 0x40000000

_CLONE_NEWUSER = 0x10000000
_PR_SET_DUMPABLE = 4
_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK

# By machine name: the architecture's id, and the numbers of the system calls.
_COMMON = {
    "clone3": 435, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "pidfd_getfd": 438,
}  # fmt: skip
_GENERIC = _COMMON | {
    "add_key": 217, "request_key": 218, "keyctl": 219, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282,
    "shmget": 194, "msgget": 186, "semget": 190, "prctl": 167, "clone": 220, "unshare": 97, "socket": 198,
    "setns": 268,
}  # fmt: skip
_MACHINES = {
    "x86_64": (0xC000003E, _COMMON | {
        "add_key": 248, "request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
        "shmget": 29, "msgget": 68, "semget": 64, "prctl": 157, "clone": 56, "unshare": 272, "socket": 41,
        "setns": 308,
    }),
    "aarch64": (0xC00000B7, _GENERIC),
    "riscv64": (0xC00000F3, _GENERIC),
}  # fmt: skip

_REFUSED = (
    # Keyrings belong to the user and not to a namespace.
    "add_key", "request_key", "keyctl",
    # Large kernel interfaces that no job needs and that often have vulnerabilities.
    "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
    # Memory that belongs to no process, so that no limit could count it.
    "shmget", "msgget", "semget",
    "setns", "pidfd_getfd",
)  # fmt: skip


def job_filter() -> bytes | None:
    """Return the filter for this machine, or None if its system call numbers are not listed here."""
    known = _MACHINES.get(platform.machine())
    if known is None:
        return None
    arch, numbers = known
    # A program of another architecture, such as a 32-bit one, uses other call numbers.
    code = [_step(_LOAD, _ARCH), _step(_EQUAL, arch, 1, 0), _step(_RETURN, _KILL), _step(_LOAD, _NR)]
    if arch == _MACHINES["x86_64"][0]:
        code += [_step(_ATLEAST, _X32, 0, 1), _step(_RETURN, _ERRNO | errno.EPERM)]
    for name in _REFUSED:
        code += [_step(_EQUAL, numbers[name], 0, 1), _step(_RETURN, _ERRNO | errno.EPERM)]
    # The flags of clone3 are in memory, which a filter cannot read. C libraries fall back to clone.
    code += [_step(_EQUAL, numbers["clone3"], 0, 1), _step(_RETURN, _ERRNO | errno.ENOSYS)]
    for name in ("clone", "unshare"):
        code += _where(
            numbers[name], [_step(_MASK, _CLONE_NEWUSER, 0, 1), _step(_RETURN, _ERRNO | errno.EPERM)]
        )
    # The memory of a process that hides from inspection could not be measured.
    hide = [_step(_EQUAL, _PR_SET_DUMPABLE, 0, 1), _step(_RETURN, _ERRNO | errno.EPERM)]
    code += _where(numbers["prctl"], hide)
    # Other address families bypass the network namespace, such as AF_VSOCK, which reaches a virtual machine's host.
    left = len(_FAMILIES)
    families = [_step(_EQUAL, family, left - i, 0) for i, family in enumerate(_FAMILIES)]
    code += _where(numbers["socket"], [*families, _step(_RETURN, _ERRNO | errno.EPERM)])
    return b"".join([*code, _step(_RETURN, _ALLOW)])


def _where(number: int, steps: list[bytes]) -> list[bytes]:
    """Return instructions for one system call, which other calls skip. Its first argument is loaded before them."""
    inner = [_step(_LOAD, _ARG0), *steps, _step(_LOAD, _NR)]
    return [_step(_EQUAL, number, 0, len(inner)), *inner]


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    """Return one instruction; ``then`` and ``otherwise`` say how many to skip."""
    return struct.pack("=HBBI", code, then, otherwise, value)
