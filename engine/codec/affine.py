"""MLX's own affine quantization, in the shape of the other codecs: the baseline they are measured against."""

import math
from dataclasses import dataclass

from engine.codec.uncompressed import Unrotated
from engine.errors import BadInput
from engine.mx import mx

LARGEST = 65504.0  # of half precision


@dataclass(frozen=True)
class AffinePacked:
    """What is stored: integer codes with a half-precision scale and bias a group."""

    codes: mx.array
    scales: mx.array
    biases: mx.array

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return self.codes.nbytes + self.scales.nbytes + self.biases.nbytes


@dataclass(frozen=True)
class AffineCodec(Unrotated):
    """``mx.quantize`` at ``bits`` per value, with one half-precision scale and bias for every ``group`` values.

    Args:
        dim: values in a vector; a multiple of ``group``.
        bits: bits of a code.
        group: values that share a scale and a bias.
        rotated: whether a Hadamard transform comes first, which spreads outliers over the vector.

    Raises:
        BadInput: the groups do not divide a vector.
    """

    dim: int
    bits: int
    group: int = 64
    rotated: bool = False

    def __post_init__(self) -> None:
        if self.dim < self.group or self.dim % self.group:
            raise BadInput(
                f"it stores vectors of {self.dim} values, which groups of {self.group} do not divide"
            )

    @property
    def bits_per_vector(self) -> int:
        """Stored bits of one vector, scales and biases included."""
        return self.dim * self.bits + 32 * (self.dim // self.group)

    def encode(self, x: mx.array) -> AffinePacked:
        """Quantize ``x``, ``[..., dim]`` of any float type."""
        if self.rotated:
            x = mx.hadamard_transform(x.astype(mx.float32))
        return AffinePacked(*mx.quantize(x.astype(mx.float16), group_size=self.group, bits=self.bits))

    def decode(self, packed: AffinePacked) -> mx.array:
        """Return float32 ``[..., dim]``; the stored halves are widened first, so nothing more is rounded."""
        x = mx.dequantize(
            packed.codes,
            packed.scales.astype(mx.float32),
            packed.biases.astype(mx.float32),
            group_size=self.group,
            bits=self.bits,
        )
        return mx.hadamard_transform(x) if self.rotated else x

    @property
    def limit(self) -> float:
        """The distortion-rate function of a unit Gaussian at this rate: 2^-2R."""
        return math.exp2(-2 * self.bits_per_vector / self.dim)

    @property
    def row_bytes(self) -> int:
        """Bytes of a packed row: codes, then scales, then biases."""
        return self.bits_per_vector // 8

    def pack(self, x: mx.array) -> mx.array:
        """Return the rows of ``[..., dim]``, uint8 ``[..., row_bytes]``; magnitudes saturate at 65504."""
        packed = self.encode(mx.clip(x, -LARGEST, LARGEST))
        parts = (packed.codes, packed.scales, packed.biases)
        return mx.concatenate([part.view(mx.uint8) for part in parts], axis=-1)

    def unpack(self, rows: mx.array, dtype: mx.Dtype = mx.float32) -> mx.array:
        """Return the vectors of rows, ``[..., dim]``."""
        side = 2 * self.dim // self.group
        codes, scales, biases = mx.split(rows, [self.row_bytes - 2 * side, self.row_bytes - side], axis=-1)
        packed = AffinePacked(codes.view(mx.uint32), scales.view(mx.float16), biases.view(mx.float16))
        return self.decode(packed).astype(dtype)
