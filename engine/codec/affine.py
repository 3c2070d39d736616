"""MLX's own affine quantization, in the shape of the other codecs: the baseline they are measured against."""

import math
from dataclasses import dataclass

from engine.mx import mx


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
class AffineCodec:
    """``mx.quantize`` at ``bits`` per value, with one half-precision scale and bias for every ``group`` values.

    Args:
        dim: values in a vector; a multiple of ``group``.
        bits: bits of a code.
        group: values that share a scale and a bias.
        rotated: whether a Hadamard transform comes first, which spreads outliers over the vector.
    """

    dim: int
    bits: int
    group: int = 64
    rotated: bool = False

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
