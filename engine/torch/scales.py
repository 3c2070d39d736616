"""Scales in torch: k stands for 2^(k / 32). See ``engine.codec.scales``."""

from functools import lru_cache

import torch

from engine.codec.spec import STEPS

_OCTAVES = 126  # the table spans so many octaves below and above 1
_MARKS = tuple(2.0 ** (j / 16) for j in range(1, 16))


def steps_of(k: torch.Tensor) -> torch.Tensor:
    """Return 2^(k / 32), float32, for integers k of at most 126 octaves."""
    return _table(k.device).take(k.long() + _OCTAVES * len(STEPS))


def power_of_two(exponent: torch.Tensor) -> torch.Tensor:
    """Return 2^exponent, float32, for int32 exponents from -126 to 127."""
    return ((exponent + 127) << 23).view(torch.float32)


def exponent_of(x: torch.Tensor) -> torch.Tensor:
    """Return floor(log2(x)), int32, of non-negative float32; -127 for zero and subnormals."""
    return (x.view(torch.int32) >> 23) - 127


def scale_of_square(square: torch.Tensor) -> torch.Tensor:
    """Return the largest k with 2^(k / 32) <= sqrt(square), int32, for positive normal float32."""
    mantissa = ((square.view(torch.int32) & 0x7FFFFF) | 0x3F800000).view(torch.float32)
    marks = torch.tensor(_MARKS, dtype=torch.float32, device=square.device)
    return 16 * exponent_of(square) + (mantissa[..., None] >= marks).sum(-1, dtype=torch.int32)


@lru_cache(maxsize=8)
def _table(device: torch.device) -> torch.Tensor:
    """Return all steps, the coarsest last."""
    octaves = power_of_two(torch.arange(-_OCTAVES, _OCTAVES, dtype=torch.int32))
    return (torch.tensor(STEPS, dtype=torch.float32) * octaves[:, None]).reshape(-1).to(device)
