"""The engine's one door to mlx-lm, which imports MLX itself: :mod:`engine.mx` has to come first.

Importing this takes seconds (mlx-lm loads transformers), so modules reach for it when they need it.
"""

import engine.mx  # noqa: F401 - the order is the point

try:
    import mlx_lm
    from mlx_lm import utils
    from mlx_lm.generate import generate_step, generation_stream, stream_generate
    from mlx_lm.models import base, cache, rope_utils
    from mlx_lm.sample_utils import make_sampler
except ImportError as error:
    from engine import install
    from engine.errors import MissingPackage

    raise MissingPackage(
        f"mlx-lm cannot be loaded: {error}",
        install.how(),
    ) from error

__all__ = [
    "base",
    "cache",
    "generate_step",
    "generation_stream",
    "make_sampler",
    "mlx_lm",
    "rope_utils",
    "stream_generate",
    "utils",
]
