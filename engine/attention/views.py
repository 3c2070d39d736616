"""The views that a packed cache gives to a model's attention in place of arrays."""

from typing import Any

from engine.codec.row_codec import RowCodec
from engine.mx import mx


class PackedView:
    """Packed keys or values that report the shape ``[batch, heads, length, dim]``.

    ``engine.attention.packed.attend`` reads the rows tile by tile. Any other use, such as a slice or a method
    of an array, decodes the whole array: correct, but large.
    """

    def __init__(self, rows: mx.array, codec: RowCodec, dtype: mx.Dtype) -> None:
        """Wrap ``rows``, uint8 ``[batch, heads, length, bytes]``, of values that came in as ``dtype``."""
        self.rows = rows
        self.codec = codec
        self.dtype = dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the decoded array."""
        return (*self.rows.shape[:-1], self.codec.dim)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.rows.ndim

    def dense(self) -> mx.array:
        """Decode everything."""
        return self.codec.decode(self.rows, self.dtype)

    def rotated(self, start: int, stop: int) -> mx.array:
        """Decode tokens ``start`` to ``stop`` with the rotation still on, float32."""
        return self.codec.decode_rotated(self.rows[..., start:stop, :])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.dense(), name)

    def __getitem__(self, key: Any) -> mx.array:
        return self.dense()[key]
