"""The only module that imports MLX: use ``from engine.mx import mx, nn``.

It first loads a fast BLAS, which would have no effect after MLX. The lint rules ban ``import mlx`` everywhere else
in this package.

According to MLX's types, a value on the host may be complex, or a list of lists. ``number`` and
``integers`` return the types that this engine needs.
"""

from pathlib import Path
from typing import Any, cast

from bridge.common import install
from engine import blas
from engine.errors import MissingPackage

blas.preload()

try:
    import mlx.core as mx
    from mlx import nn
    from mlx import optimizers as _optimizers
    from mlx import utils as _tree
except ImportError as error:
    raise MissingPackage(
        f"MLX cannot be loaded: {error}",
        install.how(),
    ) from error

__all__ = [
    "DTYPES",
    "dtype_name",
    "integers",
    "load",
    "mx",
    "nn",
    "number",
    "on_cpu",
    "optimizers",
    "parameter_bytes",
    "tree",
]

optimizers: Any = _optimizers  # has no types
tree: Any = _tree  # its types are unions of everything that a tree may be

# The types in which weights and rows are stored and models compute, by their names in files.
DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}


def load(path: Path) -> dict[str, mx.array]:
    """Return the arrays of a safetensors file, by name."""
    return cast("dict[str, mx.array]", mx.load(str(path)))


def number(x: mx.array) -> float:
    """Return the value of a scalar array: a real number, or an integer or truth value as a float."""
    return cast("float", x.item())


def integers(x: mx.array) -> list[int]:
    """Return the values of an array of integers with one axis."""
    return cast("list[int]", x.tolist())


def dtype_name(dtype: mx.Dtype) -> str:
    """Return the name of a type in files and reports, such as ``float16``."""
    return str(dtype).removeprefix("mlx.core.")


def parameter_bytes(model: nn.Module) -> int:
    """Return the bytes of a model's parameters."""
    return sum(leaf.nbytes for _, leaf in tree.tree_flatten(model.parameters()))


def on_cpu() -> bool:
    """Return whether the default device is a CPU."""
    return mx.default_device().type == mx.cpu
