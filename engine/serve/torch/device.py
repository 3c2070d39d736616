"""Where torch computes, and in which type."""

import re

import torch

from bridge.common import host
from engine import blas
from engine.errors import BadInput

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
STORED = "stored"
DEVICES = ("cpu", "mps", "cuda")
# The type to compute in if none is named. Half types are slow on CPUs, and MPS has no fast bfloat16 on older chips.
USUAL = {"cpu": torch.float32, "mps": torch.float16, "cuda": torch.bfloat16}


def device_of(name: str | None) -> torch.device:
    """Return the device of a name; None, ``auto`` and ``gpu`` choose one.

    Raises:
        BadInput: this machine does not have it.
    """
    here = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    wanted = name or "auto"
    names = {"auto": ("cuda", "mps", "cpu"), "gpu": ("cuda", "mps")}.get(wanted, (wanted,))
    for each in names:
        if here.get(each):
            return torch.device(each)
    fix = f"leave the option out, or name one of {', '.join(each for each in DEVICES if here[each])}"
    raise BadInput(f"--device {name}: torch has no such device on this machine", fix)


def dtype_of(name: str | None, device: torch.device) -> torch.dtype | None:
    """Return the type of a name of ``DTYPES``; None if it is ``stored``. Without a name, the device's usual one.

    Raises:
        BadInput: there is no such type.
    """
    if name is None:
        return USUAL[device.type]
    if name == STORED:
        return None
    if name not in DTYPES:
        raise BadInput(f"no such type: {name}", f"one of {', '.join(DTYPES)}, {STORED}")
    return DTYPES[name]


def name_of(dtype: torch.dtype) -> str:
    """Return the name of a type, such as ``float16``."""
    return str(dtype).removeprefix("torch.")


def blas_name() -> str:
    """Return the BLAS that torch multiplies with on a CPU: packed tokens depend on its rounding.

    An OpenBLAS that ``engine.blas`` loaded before torch replaces the one that torch was built with.
    """
    if host.system().startswith("Darwin") or torch.backends.mps.is_available():
        return "accelerate"
    if blas.in_use().name == "openblas":
        return "openblas (preloaded for MLX)"
    built = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return built[1] if built else "unknown"
