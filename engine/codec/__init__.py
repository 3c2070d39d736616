"""Codecs for K and V vectors.

The names below are imported when they are used: the tables of the format need no MLX.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "AffineCodec": "engine.codec.affine",
    "ClassicCodec": "engine.codec.classic",
    "VoronoiCodec": "engine.codec.voronoi",
    "VoronoiPacked": "engine.codec.voronoi",
}
__all__ = ["AffineCodec", "ClassicCodec", "VoronoiCodec", "VoronoiPacked"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
