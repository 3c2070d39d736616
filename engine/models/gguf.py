"""Reads a GGUF file and writes its weights as safetensors: with MLX or, where that is absent, with ``gguf``.

Both compute the same float32 values. MLX writes if it is there, so that a model's file is the same as before.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import MissingPackage

Tensors = dict[str, np.ndarray]
BLOCK = 32  # values with a scale and a bias


def read(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """Return the weights in float32, by their names without ``.weight``, and the metadata as plain values."""
    return read_with_mlx(path) if find_spec("mlx") else read_with_gguf(path)


def write(path: Path, tensors: Tensors) -> None:
    """Write a safetensors file."""
    if find_spec("mlx"):
        from engine.mx import mx

        mx.save_safetensors(str(path), {name: mx.array(x) for name, x in tensors.items()}, {"format": "mlx"})
        return
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(x) for name, x in tensors.items()}, path, {"format": "mlx"})


def read_with_mlx(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """Return what ``read`` returns, on a machine with MLX."""
    from engine.mx import mx

    loaded: Any = mx.load(str(path), return_metadata=True)
    tensors, metadata = loaded
    plain = {}
    for name, tensor in tensors.items():
        base, _, kind = name.rpartition(".")
        if kind != "weight":
            continue
        if f"{base}.scales" in tensors:
            scales, biases = (tensors[f"{base}.{part}"].astype(mx.float32) for part in ("scales", "biases"))
            bits = tensor.shape[-1] * 32 // (scales.shape[-1] * BLOCK)
            tensor = mx.dequantize(tensor, scales, biases, group_size=BLOCK, bits=bits)  # noqa: PLW2901
        plain[base] = np.array(tensor.astype(mx.float32))
    return plain, {name: _plain(value) for name, value in metadata.items()}


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def read_with_gguf(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """Return what ``read`` returns, on a machine without MLX. Raises MissingPackage without the package ``gguf``."""
    try:
        import gguf
    except ImportError as error:
        from bridge.common import install

        raise MissingPackage(f"neither MLX nor gguf can be loaded: {error}", install.torch()) from error
    reader = gguf.GGUFReader(path)
    tensors = {
        each.name.removesuffix(".weight"): gguf.quants.dequantize(each.data, each.tensor_type).astype(
            np.float32
        )
        for each in reader.tensors
    }
    return tensors, {name: field.contents() for name, field in reader.fields.items()}
