"""The codecs and caches for transformers on torch. Nothing here imports MLX."""

import re
from importlib import metadata

from bridge.common import install
from engine.errors import MissingPackage

FLOORS = {"torch": (2, 13), "transformers": (5, 24)}  # the least versions, as in pyproject.toml


def _check_versions() -> None:
    """Raise MissingPackage for a version that is too old; the import reports what is absent."""
    for name, floor in FLOORS.items():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < floor:
            least = ".".join(map(str, floor))
            raise MissingPackage(f"{name} {version} is too old: {least} or newer is needed", install.torch())


_check_versions()
try:
    from engine.torch.cache import DEFAULT, cache_bytes, kakeya_cache, packed_layers
except ImportError as error:
    raise MissingPackage(f"torch and transformers cannot be loaded: {error}", install.torch()) from error

__all__ = ["DEFAULT", "cache_bytes", "kakeya_cache", "packed_layers"]
