"""Recognises files of other formats in a folder without an MLX model, and says how to convert them."""

from pathlib import Path
from typing import Any

MODEL = "take the model's repository in safetensors, or a conversion for MLX"
# File names of other formats, what they are, and what to do. The first that is found counts.
OTHERS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("*.incomplete", "*.part", "*.crdownload"), "an unfinished download", "finish the download"),
    (("*.gguf",), "GGUF, llama.cpp's format", MODEL),
    (
        ("adapter_config.json", "adapter*.safetensors", "adapter_model.bin"),
        "an adapter, which is only a part of a model",
        "merge it with its base model: mlx_lm.fuse --model BASE --adapter-path FOLDER",
    ),
    (("consolidated*.safetensors",), "Mistral's own format", "take the files model*.safetensors beside it"),
    (("*.npz",), "weights of an early MLX", "convert the model again: mlx_lm.convert"),
    (
        ("*.bin", "*.pt", "*.pth", "*.ckpt"),
        "pickles of PyTorch, which can run code",
        f"{MODEL}, or save it with transformers: save_pretrained writes safetensors",
    ),
    (("*.h5", "*.msgpack", "*.pb", "*.ckpt.index", "*.tflite"), "the format of TensorFlow or Flax", MODEL),
    (("*.onnx", "onnx/*.onnx"), "ONNX", MODEL),
    (("*.mlmodelc", "*.mlpackage"), "Core ML", MODEL),
    (
        ("*.safetensors",),
        "weights under another name",
        "name them model.safetensors if they are a whole model",
    ),
)


def advice(folder: Path, otherwise: str) -> tuple[str, str]:
    """Return what a folder has in place of a model, as the end of a sentence, and what to do."""
    snapshot = next(iter(sorted(folder.glob("snapshots/*/config.json"))), None)
    if snapshot is not None:
        return "", f"give the folder {snapshot.parent}"
    for patterns, kind, fix in OTHERS:
        files = (path for pattern in patterns for path in sorted(folder.glob(pattern)))
        other = next((path for path in files if not path.match("model*.safetensors")), None)
        if other is not None:
            return f"; {other.name} is {kind}", fix
    return "", otherwise


def advice_for_quantized(config: dict[str, Any], otherwise: str) -> str:
    """Return what to do about weights that MLX cannot build, if their configuration says that they are quantized."""
    quantized = config.get("quantization_config")
    method = quantized.get("quant_method") if isinstance(quantized, dict) else None
    if "quantization" in config or not isinstance(method, str):
        return otherwise
    return f"its weights are quantized by {method[:40]}: take the model without it, or a conversion for MLX"
