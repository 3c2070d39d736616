"""The engine's one door to MLX: ``from engine.mx import mx, nn``.

A fast BLAS is loaded first; imported the other way round it would have no effect. The lint rules ban
``import mlx`` everywhere else in this package.
"""

from engine import blas, install
from engine.errors import MissingPackage

blas.preload()

try:
    import mlx.core as mx
    from mlx import nn, optimizers
    from mlx import utils as tree
except ImportError as error:
    raise MissingPackage(
        f"MLX cannot be loaded: {error}",
        install.how(),
    ) from error

__all__ = ["mx", "nn", "optimizers", "tree"]
