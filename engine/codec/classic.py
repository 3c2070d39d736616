"""The published lattice codec (KakeyaLattice v1.4: D4, v1.5: E8), step for step.

It round-trips vectors and counts bits nominally; ``engine.codec.classic_store`` encodes them as bytes. Two
properties of the reference are kept: the clamp of step 6 moves about one E8 block in a hundred off the
lattice, and vectors whose norm exceeds half precision (65504) become infinite.
``engine.codec.voronoi`` has neither property.
"""

from dataclasses import dataclass

from engine.codec import hadamard
from engine.codec.lattice import nearest_d, nearest_e8
from engine.codec.spec import BLOCK_SIZES, published_bits
from engine.errors import BadInput
from engine.mx import mx

EPS = 2.0**-23  # float32's machine epsilon; as a half it is subnormal but not zero
LARGEST_RANGE = 1 << 20  # so that coordinates stay in the range that engine.codec.lattice can round


@dataclass(frozen=True)
class ClassicCodec:
    """Round trip through D4 or E8 points within a cube.

    Raises:
        BadInput: there is no such code.
    """

    lattice: str = "e8"  # or `d4`
    dim: int = 128  # a power of two that the block divides
    q_range: int = 38  # half the side of the cube in lattice units, at least 1

    def __post_init__(self) -> None:
        if self.lattice not in BLOCK_SIZES:
            raise BadInput(f"no lattice {self.lattice!r}", "e8 or d4")
        if self.dim < BLOCK_SIZES[self.lattice] or self.dim & (self.dim - 1):
            raise BadInput(f"the published codec has no dim {self.dim}", "a power of two, at least one block")
        if not 1 <= self.q_range <= LARGEST_RANGE:
            raise BadInput(f"q_range is {self.q_range}, it has to be from 1 to {LARGEST_RANGE}")

    @property
    def bits_per_vector(self) -> int:
        """Nominal bits of a vector."""
        return published_bits(self.lattice, self.dim, self.q_range)

    def roundtrip(self, x: mx.array) -> mx.array:
        """Return the reconstruction of ``[..., dim]``, in its type; float32 inside."""
        return self.value(*self.parts(x)).reshape(x.shape).astype(x.dtype)

    def parts(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """Return norms and maxima, float16 ``[n, 1]``, and points, multiples of one half, float32 ``[n, dim]``."""
        if x.shape[-1] != self.dim:
            raise BadInput(f"vectors of {x.shape[-1]} values, a codec for {self.dim}")
        wide = x.astype(mx.float32).reshape(-1, self.dim)
        norm = mx.maximum(mx.linalg.norm(wide, axis=-1, keepdims=True), EPS)
        y = hadamard.rotate_quickly(wide / norm)
        largest = mx.maximum(mx.abs(y).max(axis=-1, keepdims=True), EPS).astype(mx.float16)
        point = self._nearest(y / (largest.astype(mx.float32) / self.q_range))
        return norm.astype(mx.float16), largest, mx.clip(point, -self.q_range, self.q_range)

    def value(self, norm: mx.array, largest: mx.array, point: mx.array) -> mx.array:
        """Decode the result of ``parts``, float32 ``[n, dim]``."""
        scale = largest.astype(mx.float32) / self.q_range
        return hadamard.rotate_quickly(point * scale) * norm.astype(mx.float32)

    def _nearest(self, z: mx.array) -> mx.array:
        """Return the nearest lattice points of consecutive blocks of ``[n, dim]``."""
        blocks = z.reshape(z.shape[0], -1, BLOCK_SIZES[self.lattice]).swapaxes(1, 2)
        point = nearest_e8(blocks)[0] if self.lattice == "e8" else nearest_d(blocks)
        return point.swapaxes(1, 2).reshape(z.shape)
