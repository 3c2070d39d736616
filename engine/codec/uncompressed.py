"""Vectors as they come, in rows of bytes: one side of a cache whose other side is coded."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from engine.mx import DTYPES, mx


class Unrotated(ABC):
    """The part of a :class:``engine.codec.kinds.RowCodec`` that attention sees, where vectors come back unrotated."""

    @abstractmethod
    def unpack(self, rows: mx.array, dtype: mx.Dtype = mx.float32) -> mx.array:
        """Return the vectors of rows, ``[..., dim]``."""

    def unpack_rotated(self, rows: mx.array) -> mx.array:
        """Return the vectors of rows in float32."""
        return self.unpack(rows)

    def rotate(self, x: mx.array) -> mx.array:
        """Return ``x`` in float32."""
        return x.astype(mx.float32)

    def unrotate(self, y: mx.array) -> mx.array:
        """Return ``y``."""
        return y


@dataclass(frozen=True)
class RawCodec(Unrotated):
    """Rows hold the values themselves.

    Args:
        dim: values in a vector.
        dtype: their type, by name.
    """

    dim: int
    dtype: str

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.dim * DTYPES[self.dtype].size

    def pack(self, x: mx.array) -> mx.array:
        """Return the bytes of ``[..., dim]``, uint8 ``[..., row_bytes]``."""
        return x.astype(DTYPES[self.dtype]).view(mx.uint8)

    def unpack(self, rows: mx.array, dtype: mx.Dtype = mx.float32) -> mx.array:
        """Return ``[..., dim]``."""
        return rows.view(DTYPES[self.dtype]).astype(dtype)
