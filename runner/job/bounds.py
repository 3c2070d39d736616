"""What a job may take up at most: the smaller of what its preset and this host's policy say."""

from __future__ import annotations

from bridge import presets
from runner import policy

_MIB = 1 << 20
_WHY = {
    "memory": "it took more memory than it may",
    "processes": "it had more processes than it may",
    "disk": "its folder took more of the disk than it may",
    "files": "its folder held more files than it may",
    "free": "the host's disk was nearly full",
    "available": "the host's memory was nearly used up",
}


def bounds(preset: presets.Limits, host: policy.Limits) -> dict[str, int]:
    """Return the bounds that the supervisor watches, in bytes or as counts. `free` must stay free on the disk.

    `available` must stay free of the host's memory.
    """
    most = {
        "memory": _smaller(preset.memory_mb, host.memory_mb, _MIB),
        "processes": _smaller(preset.processes, host.processes),
        "disk": _smaller(preset.disk_mb, host.disk_mb, _MIB),
        "files": _smaller(preset.files, host.files),
        "free": host.keep_free_mb * _MIB,
        "available": host.keep_memory_mb * _MIB,
    }
    return {name: bound for name, bound in most.items() if bound is not None}


def explain(exceeded: str) -> str:
    """Return a sentence for people about the bound that was passed."""
    return _WHY[exceeded]


def _smaller(one: int | None, other: int | None, unit: int = 1) -> int | None:
    given = [value * unit for value in (one, other) if value is not None]
    return min(given, default=None)
