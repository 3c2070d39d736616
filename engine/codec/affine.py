"""MLX's own affine quantization, with the interface of the other codecs: their baseline."""

from dataclasses import dataclass

from engine.codec.row_codec import RowCodec
from engine.errors import BadInput
from engine.mx import mx

LARGEST = 65504.0  # the largest number in half precision


@dataclass(frozen=True)
class AffineCodec(RowCodec):
    """``mx.quantize`` at ``bits`` per value, with one half-precision scale and bias for every ``group`` values.

    Raises:
        BadInput: the vector cannot be divided into groups of this size.
    """

    dim: int  # values in a vector: a multiple of `group`
    bits: int
    group: int = 64
    rotated: bool = False  # whether a Hadamard transform comes first, which spreads outliers over the vector

    def __post_init__(self) -> None:
        if self.dim < self.group or self.dim % self.group:
            raise BadInput(
                f"it stores vectors of {self.dim} values, which groups of {self.group} do not divide"
            )

    @property
    def bits_per_vector(self) -> int:
        """Stored bits of one vector, scales and biases included."""
        return self.dim * self.bits + 32 * (self.dim // self.group)

    @property
    def row_bytes(self) -> int:
        """Bytes of a packed row: codes, then scales, then biases."""
        return self.bits_per_vector // 8

    def encode(self, x: mx.array) -> mx.array:
        """Return the rows of ``[..., dim]``, uint8 ``[..., row_bytes]``; magnitudes saturate at 65504."""
        if self.rotated:
            x = mx.hadamard_transform(x.astype(mx.float32))
        halves = mx.clip(x, -LARGEST, LARGEST).astype(mx.float16)
        parts = mx.quantize(halves, group_size=self.group, bits=self.bits)
        return mx.concatenate([part.view(mx.uint8) for part in parts], axis=-1)

    def decode(self, rows: mx.array, dtype: mx.Dtype = mx.float32) -> mx.array:
        """Return the vectors, ``[..., dim]``. Scales and biases are widened first, so nothing more is rounded."""
        side = 2 * self.dim // self.group
        codes, scales, biases = mx.split(rows, [self.row_bytes - 2 * side, self.row_bytes - side], axis=-1)
        scales, biases = (part.view(mx.float16).astype(mx.float32) for part in (scales, biases))
        x = mx.dequantize(codes.view(mx.uint32), scales, biases, group_size=self.group, bits=self.bits)
        return (mx.hadamard_transform(x) if self.rotated else x).astype(dtype)
