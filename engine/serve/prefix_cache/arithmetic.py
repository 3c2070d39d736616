"""What decides the bits of a computation beside the model: software, processor, and how both multiply matrices.

Two processes with different facts round differently, so they share no stored blocks.
"""

import platform
from functools import lru_cache
from pathlib import Path
from typing import Any

from bridge.common import environment, host
from engine import blas
from engine.checkpoints import files
from engine.dflash.target import small_gemm
from engine.mx import mx, nn, on_cpu

# Settings of MLX that change how it computes.
VARIABLES = ("MLX_ENABLE_TF32", "MLX_METAL_GPU_ARCH")


def facts(target: nn.Module) -> dict[str, Any]:
    """Return the facts about this process, as data for JSON."""
    library = blas.in_use()
    return {
        "versions": host.versions(),
        "mlx": getattr(mx, "__version__", None),
        "system": [host.system(), platform.machine(), *platform.libc_ver()],
        "processor": [host.chip(), host.processor_flags()],
        "device": [host.device_name(mx.default_device()), _device()],
        "variables": {name: environment.get(name) for name in VARIABLES},
        # OpenBLAS chooses its kernels by the processor's kind, and divides products among its threads.
        "blas": [library.name, _digest(library.library), blas.core(), blas.threads()] if on_cpu() else None,
        "products": small_gemm.form_of(target),
    }


def _device() -> dict[str, Any]:
    about = mx.device_info()
    return {name: str(about.get(name)) for name in ("architecture", "device_name")}


@lru_cache
def _digest(library: str) -> str:
    """Return the digest of a library's file; the name if the library has no file of its own, as on a Mac."""
    path = Path(library)
    return files.sha256(path) if library and path.is_file() else library
