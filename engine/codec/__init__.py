"""Codecs for K and V vectors. The tables of their format, ``engine.codec.spec``, need no MLX."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.codec.classic import ClassicCodec
    from engine.codec.voronoi import VoronoiCodec

__all__ = ["ClassicCodec", "VoronoiCodec"]

_MODULES = {"ClassicCodec": "classic", "VoronoiCodec": "voronoi"}


def __getattr__(name: str) -> Any:
    """Import a codec, and MLX with it, only when it is used: the specs of caches are read without."""
    if name in _MODULES:
        return getattr(import_module(f"engine.codec.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
