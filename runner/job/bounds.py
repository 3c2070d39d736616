"""The limits of a job: for each, the smaller one of its preset and this host's policy."""

from __future__ import annotations

from bridge import presets
from runner import policy

_MIB = 1 << 20
_WHY = {
    "memory": "it exceeded its memory limit",
    "processes": "it exceeded its limit of processes",
    "disk": "its folder exceeded the disk limit",
    "files": "its folder exceeded the limit of files",
    "free": "the host's disk was nearly full",
    "available": "the host's memory was nearly used up",
}


def bounds(preset: presets.Limits, host: policy.Limits) -> dict[str, int]:
    """Return the bounds that the supervisor enforces, in bytes or as counts.

    ``free`` bytes must stay free on the disk, and ``available`` bytes of the host's memory.
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
    """Return a message about the bound that was exceeded."""
    return _WHY[exceeded]


def _smaller(first: int | None, second: int | None, unit: int = 1) -> int | None:
    values = [value * unit for value in (first, second) if value is not None]
    return min(values, default=None)
