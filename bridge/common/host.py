"""Facts about this machine, for reports."""

import platform
import resource
import sys
from importlib import metadata
from pathlib import Path

import psutil

from bridge.common import process

PACKAGES = ("mlx", "mlx-lm", "numpy", "kakeya-bridge")


def system() -> str:
    """Return the operating system with its version: ``macOS 15.1`` or ``Debian GNU/Linux 12 (bookworm)``."""
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]}"
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return f"{platform.system()} {platform.release()}"
    return release.get("PRETTY_NAME", platform.system())


def chip() -> str:
    """Return the processor's name, or the architecture if the name is unknown."""
    if sys.platform == "darwin":
        return process.answer("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    return _of_processor("model name") or platform.machine()


def processor_flags() -> str:
    """Return the processor's features, as Linux names them; empty elsewhere. Virtual machines may hide some."""
    return _of_processor("flags", "Features")


def _of_processor(*names: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(names)), "")


def memory_bytes() -> int:
    """Return the machine's physical memory in bytes."""
    return int(psutil.virtual_memory().total)


def process_bytes() -> int:
    """Return the memory that this process occupies, in bytes."""
    return int(psutil.Process().memory_info().rss)


def process_peak_bytes() -> int:
    """Return the most memory that this process has occupied, in bytes.

    On Linux, ``getrusage`` also counts the process that started this one.
    """
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").split("\n")
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def cores() -> int:
    """Return the number of logical processors."""
    return psutil.cpu_count() or 1


def version(package: str) -> str | None:
    """Return the installed version of a distribution, without importing it; None if it is absent."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str | None]:
    """Return the versions of Python and of ``PACKAGES``, by name with underscores for dashes."""
    packages = {package.replace("-", "_"): version(package) for package in PACKAGES}
    return {"python": platform.python_version(), **packages}


def device_name(device: object) -> str:
    """Return an MLX device as ``cpu`` or ``gpu``."""
    return "gpu" if "gpu" in str(device) else "cpu"
