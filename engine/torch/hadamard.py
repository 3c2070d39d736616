"""The orthonormal Hadamard rotation in torch, with the rounding of ``engine.codec.cpu.hadamard``."""

from functools import lru_cache

import torch

from engine.codec.cpu.hadamard import factor, scale_of, signs


def rotate(y: torch.Tensor) -> torch.Tensor:
    """Return ``H y`` along the first axis of float32 ``[dim, n]``."""
    return _transformed(y, transposed=False)


def unrotate(y: torch.Tensor) -> torch.Tensor:
    """Return ``H^T y`` along the first axis of float32 ``[dim, n]``: undoes ``rotate``."""
    return _transformed(y, transposed=True)


def rotate_last(x: torch.Tensor) -> torch.Tensor:
    """Return ``rotate`` along the last axis of any float ``[..., dim]``, float32."""
    return _along_last(x, transposed=False)


def unrotate_last(x: torch.Tensor) -> torch.Tensor:
    """Undo ``rotate_last``."""
    return _along_last(x, transposed=True)


@lru_cache(maxsize=8)
def matrix(dim: int, device: torch.device) -> torch.Tensor:
    """Return the matrix that rotates a row vector. For few vectors, a product takes less time than the sums."""
    with torch.inference_mode(False):
        return rotate_last(torch.eye(dim, device=device))


def _along_last(x: torch.Tensor, *, transposed: bool) -> torch.Tensor:
    columns = x.float().reshape(-1, x.shape[-1]).T.contiguous()
    return _transformed(columns, transposed=transposed).T.reshape(x.shape)


def _transformed(y: torch.Tensor, *, transposed: bool) -> torch.Tensor:
    dim, n = y.shape
    m, half = factor(dim), 1
    while half < dim // m:
        pairs = y.reshape(-1, 2, half, n)
        y = torch.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], dim=1)
        half *= 2
    y = y.reshape(dim, n)
    if m > 1:  # the order of additions is part of the codec's definition
        matrix = torch.from_numpy(signs(m)).to(y.device)
        matrix = matrix.T if transposed else matrix
        parts = y.reshape(m, -1)
        y = torch.zeros_like(parts)
        for k in range(m):
            y = y + matrix[:, k : k + 1] * parts[k]
    return y.reshape(dim, n) * scale_of(dim)
