"""The interface of codecs for packed caches; and the raw codec, for the side of a cache that is not coded."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from engine.mx import DTYPES, mx


class RowCodec(ABC):
    """A codec with which packed caches store keys or values as rows of bytes.

    Inner products and weighted sums do not change under the rotation, so attention works on rotated vectors. A codec
    without a rotation inherits the last three methods.
    """

    dim: int  # values in a vector

    @property
    @abstractmethod
    def row_bytes(self) -> int:
        """Bytes of a row."""

    @abstractmethod
    def encode(self, x: mx.array) -> mx.array:
        """Return the rows, uint8 ``[..., row_bytes]``, of vectors ``[..., dim]`` of any float type."""

    @abstractmethod
    def decode(self, rows: mx.array, dtype: mx.Dtype = mx.float32) -> mx.array:
        """Return the vectors of rows, ``[..., dim]``."""

    def decode_rotated(self, rows: mx.array) -> mx.array:
        """Return the vectors of rows with the codec's rotation still on, float32 ``[..., dim]``."""
        return self.decode(rows)

    def rotate(self, x: mx.array) -> mx.array:
        """Return ``[..., dim]`` after the codec's orthonormal rotation, float32."""
        return x.astype(mx.float32)

    def unrotate(self, y: mx.array) -> mx.array:
        """Undo ``rotate``."""
        return y


@dataclass(frozen=True)
class RawCodec(RowCodec):
    """Rows hold the values themselves."""

    dim: int
    dtype: str  # name of the type

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.dim * DTYPES[self.dtype].size

    def encode(self, x: mx.array) -> mx.array:
        """Return the bytes of ``[..., dim]``."""
        return x.astype(DTYPES[self.dtype]).view(mx.uint8)

    def decode(self, rows: mx.array, dtype: mx.Dtype = mx.float32) -> mx.array:
        """Return ``[..., dim]``."""
        return rows.view(DTYPES[self.dtype]).astype(dtype)
