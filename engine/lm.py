"""The only module that imports mlx-lm. Mlx-lm imports MLX itself, so ``engine.mx`` has to be imported before.

Importing this module takes a second (mlx-lm loads transformers), so other modules import it only when they need it.
Transformers would load torch too if that is installed, which takes longer than all the rest, and mlx-lm does not use
it. So torch is kept out unless it is loaded already. ``engine.train.with_torch`` needs both, and loads it first.
"""

import functools
import gc
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import engine.mx  # noqa: F401 - the order is the point


@contextmanager
def _without(name: str) -> Iterator[None]:
    """Let a module that is not loaded yet count as not installed."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment] # what Python documents for this
    try:
        yield
    finally:
        del sys.modules[name]


@contextmanager
def _keeping_hard_limits() -> Iterator[None]:
    """Let a module that raises the number of open files stay within what the host allows, and not lower that."""
    change = resource.setrlimit

    def raise_soft(kind: int, limits: tuple[int, int]) -> None:
        hard = resource.getrlimit(kind)[1]
        change(kind, (limits[0] if hard == resource.RLIM_INFINITY else min(limits[0], hard), hard))

    resource.setrlimit = raise_soft
    try:
        yield
    finally:
        resource.setrlimit = change


@contextmanager
def _collecting_no_garbage() -> Iterator[None]:
    """Search for no garbage while modules are imported, which all stay: that takes a tenth of their time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def _reading_each_model_once() -> Iterator[None]:
    """Let transformers read the sources of its models once: its cache forgets them before it asks a second time.

    It reads thousands of files to learn their names, which takes a quarter of its start.
    """
    cache = functools.lru_cache

    def keeping_folders(maxsize: Any = 128, typed: bool = False) -> Any:
        if getattr(maxsize, "__name__", None) == "create_import_structure_from_path":
            return cache(maxsize=None)(maxsize)
        return cache(maxsize, typed)

    functools.lru_cache = keeping_folders
    try:
        yield
    finally:
        functools.lru_cache = cache


try:
    with _without("torch"), _keeping_hard_limits(), _collecting_no_garbage(), _reading_each_model_once():
        import mlx_lm
        from mlx_lm import utils
        from mlx_lm.generate import generate_step, generation_stream, stream_generate
        from mlx_lm.models import base, cache, qwen3, rope_utils
        from mlx_lm.sample_utils import make_sampler
        from transformers import PreTrainedTokenizerFast
except ImportError as error:
    from bridge.common import install
    from engine.errors import MissingPackage

    raise MissingPackage(
        f"mlx-lm cannot be loaded: {error}",
        install.how(),
    ) from error


def architecture(name: str) -> Any:
    """Return mlx-lm's module of a model architecture."""
    return import_module(f"mlx_lm.models.{name}")


__all__ = [
    "PreTrainedTokenizerFast",
    "architecture",
    "base",
    "cache",
    "generate_step",
    "generation_stream",
    "make_sampler",
    "mlx_lm",
    "qwen3",
    "rope_utils",
    "stream_generate",
    "utils",
]
