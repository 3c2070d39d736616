"""The sandbox on Linux: unprivileged namespaces made by bubblewrap, with an almost empty root.

docs/security.md says what a job sees in it.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from runner.job.sandbox.paths import Layer, layers
from runner.job.syscalls import PLACEHOLDER, job_filter

PROGRAMS = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap")

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = (
    "alternatives", "ca-certificates", "group", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime",
    "nsswitch.conf", "passwd", "pki/ca-trust", "pki/tls/certs", "ssl/certs", "ssl/openssl.cnf",
)  # fmt: skip
_ETC_NETWORK = ("gai.conf", "host.conf", "hosts", "protocols", "resolv.conf", "services")

_MASKED = (
    "/proc/acpi", "/proc/asound", "/proc/bus", "/proc/cmdline", "/proc/config.gz", "/proc/fs", "/proc/interrupts",
    "/proc/iomem", "/proc/ioports", "/proc/irq", "/proc/kallsyms", "/proc/kcore", "/proc/key-users", "/proc/keys",
    "/proc/kmsg", "/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags", "/proc/latency_stats", "/proc/modules",
    "/proc/mtrr", "/proc/pagetypeinfo", "/proc/sched_debug", "/proc/scsi", "/proc/slabinfo", "/proc/sysrq-trigger",
    "/proc/timer_list", "/proc/timer_stats", "/proc/vmallocinfo",
)  # fmt: skip


def prefix(
    program: str,
    *,
    tree: Path,
    home: Path,
    network: bool,
    readable: Iterable[Path] = (),
    hidden: Iterable[Path] = (),
    strict: bool = True,
) -> list[str]:
    """Return the argv prefix. ``strict`` also forbids the job to create namespaces (needs bubblewrap 0.8)."""
    argv = [program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    argv += ["--unshare-user", "--disable-userns"] if strict else []
    argv += ["--seccomp", PLACEHOLDER] if job_filter() else []
    argv += ["--share-net"] if network else []
    argv += [*_system(network=network), "--proc", "/proc", *_masks(), "--dev", "/dev", *_hardware()]
    # These folders are on disk, below the home, because no limit would count files in a memory file system.
    for inside in ("/tmp", "/dev/shm"):  # noqa: S108 - both are the job's own
        argv += ["--bind", str(home / "tmp"), inside]
    marked = layers(readable, hidden, SYSTEM)
    for layer in marked:
        argv += _mount(layer)
    for folder in (tree, home):
        argv += ["--bind", str(folder), str(folder)]
    empty = [str(layer.path) for layer in marked if not layer.shown and layer.path.is_dir()]
    # If the runner is root, the job has root's rights on kernel files. A read-only mount stops it nevertheless.
    for mount in (*empty, "/proc", "/dev", "/"):
        argv += ["--remount-ro", mount]
    return [*argv, "--chdir", str(tree), "--"]


def shown_by(argv: Sequence[str]) -> list[str]:
    """Return the paths that a prefix makes readable."""
    binds = [i for i, word in enumerate(argv) if word in ("--ro-bind", "--ro-bind-try", "--dev-bind-try")]
    return [argv[i + 2] for i in binds if argv[i + 1] != os.devnull and Path(argv[i + 1]).exists()]


def _system(*, network: bool) -> list[str]:
    argv = []
    for path in map(Path, SYSTEM):
        if path.is_symlink():
            argv += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            argv += ["--ro-bind", str(path), str(path)]
    for name in (*_ETC, *(_ETC_NETWORK if network else ())):
        argv += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return argv


def _masks() -> list[str]:
    """Hide kernel files about the whole machine: memory, keys, messages, buses and hardware."""
    argv = []
    for path in map(Path, _MASKED):
        if path.is_dir():
            argv += ["--tmpfs", str(path), "--remount-ro", str(path)]
        elif path.exists():
            argv += ["--ro-bind", "/dev/null", str(path)]
    return argv


def _hardware() -> list[str]:
    """Show the number of cores and memory nodes, and NVIDIA devices."""
    argv = []
    for part in ("/sys/devices/system/cpu", "/sys/devices/system/node"):
        argv += ["--ro-bind-try", part, part]
    for device in sorted(Path("/dev").glob("nvidia*")):
        argv += ["--dev-bind-try", str(device), str(device)]
    return argv


def _mount(layer: Layer) -> list[str]:
    path = str(layer.path)
    if layer.shown:
        return ["--ro-bind", path, path]
    return ["--tmpfs", path] if layer.path.is_dir() else ["--ro-bind", "/dev/null", path]
