"""By which code, weights and libraries a figure was measured: digests, so that nobody has to be believed."""

import base64
import hashlib
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from engine import process

_HERE = Path(__file__).resolve().parent
_SOURCES = (".py", ".h")


def code(folder: Path = _HERE) -> dict[str, object]:
    """Return the ``code`` of a report's identity: version, digest of the sources, and the commit of a checkout.

    ``commit`` and ``dirty`` are None for an installed package; ``dirty`` looks at the package's own files alone.
    """
    sources = (path for path in folder.rglob("*") if path.suffix in _SOURCES)
    commit = None
    if process.answer("git", "-C", str(folder), "ls-files", "--error-unmatch", "__init__.py"):
        commit = process.answer("git", "-C", str(folder), "rev-parse", "HEAD")
    changed = commit and process.answer("git", "-C", str(folder), "status", "--porcelain", "--", ".")
    return {
        "version": _version(),
        "digest": digest(sources, folder),
        "commit": commit,
        "dirty": bool(changed) if commit else None,
    }


def _version() -> str:
    try:
        return metadata.version("kakeya-bridge")
    except metadata.PackageNotFoundError:
        return "not installed"


def digest(files: Iterable[Path], folder: Path) -> str:
    """Return ``sha256:...`` of files below a folder: of ``<sha256> <path>`` lines, sorted by path."""
    lines = sorted((path.relative_to(folder).as_posix(), _sha256(path).hexdigest()) for path in files)
    text = "".join(f"{found} {name}\n" for name, found in lines)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def model(
    role: str, name: str, folder: Path, dtype: str, quantization: str | None = None
) -> dict[str, object]:
    """Return an entry of a report's ``models`` for a folder in the format of the hub.

    Args:
        role: ``target``, ``draft``, ``reconstruction`` or ``reference``.
        name: the bundled name, hub id or path by which it was asked for.
        folder: where its ``*.safetensors``, ``config.json`` and tokenizer lie.
        dtype: of the weights as they are used, such as ``bfloat16``.
        quantization: such as ``4 bits, group 64``.
    """
    config = [path for path in [folder / "config.json"] if path.exists()]
    tokenizer = [path for path in folder.iterdir() if path.is_file() and _is_tokenizer(path.name)]
    return {
        "role": role,
        "id": name,
        "weights": digest(folder.glob("*.safetensors"), folder),
        "config": digest(config, folder),
        "tokenizer": digest(tokenizer, folder) if tokenizer else None,
        "dtype": dtype,
        "quantization": quantization,
    }


def modified(package: str = "mlx-lm") -> list[str]:
    """Return the files of an installed distribution that are not as its RECORD says, at most a hundred.

    Its console scripts lie elsewhere, where a sandbox may hide them, and are imported by nobody: they do not count.
    """
    try:
        files = metadata.distribution(package).files or []
    except metadata.PackageNotFoundError:
        return []
    changed = []
    for file in files:
        if file.parts[0] != ".." and file.hash is not None and file.hash.mode == "sha256":
            path = Path(str(file.locate()))
            if not path.is_file() or _record(path) != file.hash.value:
                changed.append(file.as_posix()[:200])
    return changed[:100]


def load() -> list[float]:
    """Return the load averages of 1, 5 and 15 minutes."""
    return [round(value, 2) for value in psutil.getloadavg()]


def power() -> dict[str, object]:
    """Return what the host says of its supply: nothing on a machine without a battery that says nothing."""
    found: dict[str, object] = {}
    try:
        battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    except OSError:  # in a sandbox that does not show the machine's supply
        battery = None
    if battery is not None:
        found = {"plugged": battery.power_plugged, "percent": round(battery.percent)}
    if sys.platform == "darwin":
        settings = process.answer("pmset", "-g") or ""
        low = [line.split()[-1] for line in settings.splitlines() if "lowpowermode" in line]
        found |= {"low_power": low[0] == "1"} if low else {}
    return found


def _is_tokenizer(name: str) -> bool:
    return name.startswith(("tokenizer", "special_tokens", "vocab", "merges", "chat_template"))


def _record(path: Path) -> str:
    """Return a file's digest as a RECORD writes it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(_sha256(path).digest()).rstrip(b"=").decode()


def _sha256(path: Path) -> Any:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")
