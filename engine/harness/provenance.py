"""Digests of the code, weights and libraries of a measurement, so that others can check them."""

import base64
import itertools
import platform
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import psutil

from bridge.common import host, process
from engine import blas_speed, commit
from engine.checkpoints.digests import digest
from engine.checkpoints.files import sha256

_ENGINE = Path(__file__).resolve().parent.parent
_SHARED = tuple(_ENGINE.parent / "bridge" / name for name in ("common", "reports"))
_SOURCES = (".py", ".h")


def identity() -> dict[str, object]:
    """Return the ``identity`` section of a report. Imports MLX, for the device and the BLAS in use."""
    from engine.mx import mx

    blas = blas_speed.in_use()

    return {
        "host": platform.node(),
        "os": f"{host.system()} ({platform.system()} {platform.release()} {platform.machine()})",
        "chip": host.chip(),
        "cores": host.cores(),
        "memory_bytes": host.memory_bytes(),
        "device": host.device_name(mx.default_device()),
        "versions": host.versions(),
        "blas": {**blas.as_dict(), "library": Path(blas.library).name},
        "code": code(),
        "modified": modified(),
        "load": load(),
        "power": power(),
    }


def code(folder: Path = _ENGINE, shared: Sequence[Path] = _SHARED) -> dict[str, object]:
    """Return the ``code`` of a report's identity: version, digest of the sources, and the commit of a checkout.

    ``commit`` and ``dirty`` are None if no commit is known. In a checkout, ``dirty`` looks at the package's own files.
    ``shared`` are the folders beside the engine's that it shares with the other programs.
    """
    sources = (path for part in (folder, *shared) for path in part.rglob("*") if path.suffix in _SOURCES)
    name, dirty = commit.of(folder) or (None, None)
    return {
        "version": host.version("kakeya-bridge") or "not installed",
        "digest": digest(sources, folder.parent),
        "commit": name,
        "dirty": dirty,
    }


def modified(package: str = "mlx-lm") -> list[str]:
    """Return the files of an installed distribution that differ from its RECORD, at most a hundred.

    Console scripts do not count: a sandbox may hide their folder, and nothing imports them.
    """
    try:
        files = metadata.distribution(package).files or []
    except metadata.PackageNotFoundError:
        return []
    changed = (
        file
        for file in files
        if file.parts[0] != ".." and file.hash is not None and file.hash.mode == "sha256"
        if _record(Path(str(file.locate()))) != file.hash.value
    )
    return [file.as_posix()[:200] for file in itertools.islice(changed, 100)]


def load() -> list[float]:
    """Return the load averages of 1, 5 and 15 minutes."""
    return [round(value, 2) for value in psutil.getloadavg()]


def power() -> dict[str, object]:
    """Return the power source of the host; nothing on a machine without a battery."""
    facts: dict[str, object] = {}
    try:
        battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    except OSError:  # a sandbox may hide the power supply
        battery = None
    if battery is not None:
        facts = {"plugged": battery.power_plugged, "percent": round(battery.percent)}
    if sys.platform == "darwin":
        settings = process.answer("pmset", "-g") or ""
        low = [line.split()[-1] for line in settings.splitlines() if "lowpowermode" in line]
        facts |= {"low_power": low[0] == "1"} if low else {}
    return facts


def _record(path: Path) -> str | None:
    """Return a file's digest as a RECORD writes it, URL-safe base64 without padding; None if it is no file."""
    if not path.is_file():
        return None
    return base64.urlsafe_b64encode(bytes.fromhex(sha256(path))).rstrip(b"=").decode()
