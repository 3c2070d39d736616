"""The codecs of packed caches in torch, by the family of their specs. This is the only table of them."""

from collections.abc import Callable
from typing import Protocol

import torch

from bridge.reports.cache_spec import CacheSpec
from engine.cache.spec import parse
from engine.codec.cpu import decoder as on_cpu_decoder
from engine.codec.cpu import encoder as on_cpu_encoder
from engine.codec.cpu.hadamard import factor
from engine.codec.spec import EFFORTS, Layout
from engine.errors import BadInput
from engine.torch import decoder, encoder, hadamard
from engine.torch.classic import ClassicRows


class Rows(Protocol):
    """A codec between vectors ``[n, dim]`` and rows of bytes ``[n, row_bytes]``."""

    dim: int
    row_bytes: int

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Return the rows of float32 vectors."""

    def decode(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the vectors of rows with the rotation still on, float32 ``[dim, n]``."""


class VoronoiRows:
    """Rows of Voronoi codes: see ``engine.codec.voronoi``.

    On a CPU, NumPy computes the same bytes and numbers in a third of torch's time.
    """

    def __init__(self, dim: int, bits: int, effort: str) -> None:
        factor(dim)
        self.dim, self.layout = dim, Layout(dim, bits)
        self.row_bytes, self._search = self.layout.nbytes, EFFORTS[effort][bits]

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Return the rows of float32 vectors."""
        if x.device.type != "cpu" or not len(x):
            return encoder.encode(x, self.layout, self._search)
        return torch.from_numpy(on_cpu_encoder.encode(x.numpy(), self.layout, self._search))

    def decode(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the vectors of rows with the rotation still on."""
        if rows.device.type != "cpu":
            return decoder.decode(rows, self.layout)
        return torch.from_numpy(on_cpu_decoder.decode(rows.numpy()[None], self.layout)[0])


class Coder:
    """Stores one side of a cache, keys or values, in rows; without ``rows``, the values themselves.

    Inner products and weighted sums do not change under the rotation, so attention works on rotated vectors.
    """

    def __init__(self, rows: Rows | None, dtype: torch.dtype) -> None:
        self.rows, self.dtype = rows, dtype

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Return the rows, uint8 ``[..., bytes]``, of vectors ``[..., dim]``."""
        if self.rows is None:
            return x.contiguous().view(torch.uint8)
        flat = x.detach().reshape(-1, x.shape[-1]).float()
        return self.rows.encode(flat).reshape(*x.shape[:-1], self.rows.row_bytes)

    def decode_rotated(self, packed: torch.Tensor) -> torch.Tensor:
        """Return the vectors of rows with the rotation still on, float32 ``[..., dim]``."""
        if self.rows is None:
            return packed.contiguous().view(self.dtype).float()
        y = self.rows.decode(packed.reshape(-1, packed.shape[-1]))
        return y.T.reshape(*packed.shape[:-1], self.rows.dim)

    def decode(self, packed: torch.Tensor) -> torch.Tensor:
        """Return the vectors of rows; values that are too large for the type become its largest."""
        if self.rows is None:
            return packed.contiguous().view(self.dtype)
        x = hadamard.unrotate_last(self.decode_rotated(packed))
        limits = torch.finfo(self.dtype)
        return x if self.dtype == torch.float32 else x.clamp(limits.min, limits.max).to(self.dtype)

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``[..., dim]`` after the codec's orthonormal rotation, float32, but for rounding."""
        return x.float() if self.rows is None else x.float() @ hadamard.matrix(x.shape[-1], x.device)

    def unrotate(self, y: torch.Tensor) -> torch.Tensor:
        """Undo ``rotate``."""
        return y if self.rows is None else y @ hadamard.matrix(y.shape[-1], y.device).T


CODECS: dict[str, Callable[[CacheSpec, int], Rows | None]] = {
    "raw": lambda _, __: None,
    "e8v": lambda spec, dim: VoronoiRows(
        dim, int(float(spec.fields["bits"])), spec.fields.get("effort", "normal")
    ),
    "classic": lambda spec, dim: ClassicRows(spec.fields["lattice"], dim, int(spec.fields["q_range"])),
}


def sides_of(text: str) -> tuple[CacheSpec, CacheSpec]:
    """Return the specs of keys and values.

    Raises:
        BadInput: there is no such spec, or this engine has no codec for it.
    """
    sides = parse(text).sides
    for side in sides:
        if side.family not in CODECS:
            raise BadInput(
                f"the torch backend has no cache {text}: {side.text} is a format of MLX",
                "caches that it can use: raw, e8v@4.25, e8@q38 and others of these forms",
            )
    return sides


def rows_of(side: CacheSpec, dim: int) -> Rows | None:
    """Return the codec of a side for vectors of ``dim`` values; None if the values themselves are stored.

    Raises:
        BadInput: the codec does not exist for this head size.
    """
    return CODECS[side.family](side, dim)
