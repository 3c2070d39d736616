"""The Voronoi codec: an E8 nested-lattice code with a searched scale, bit-packed at a fixed stride."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from engine.codec import graph, hadamard
from engine.codec.cpu import decoder, encoder
from engine.codec.cpu.hadamard import factor
from engine.codec.row_codec import RowCodec
from engine.codec.spec import EFFORTS, Layout
from engine.errors import BadInput
from engine.mx import mx

TOGETHER = 8 * encoder.COLUMNS  # values that are coded together, to bound the encoder's temporary memory


@dataclass(frozen=True)
class VoronoiCodec(RowCodec):
    """Vectors of ``dim`` values at ``bits`` bits per value, including all side information.

    Args:
        dim: values in a vector: a multiple of 8 for which a Hadamard rotation exists.
        bits: about 2.25, 3.25, 4.25, 5.25 or 6.25; exactly ``b + 1/8 + 2/dim * 8`` where 8 | blocks. The
            integer part b decides; at dim 128 the rate is exactly b + 1/4.
        effort: how hard the encoder searches: ``fast``, ``normal`` or ``best``. Not part of the format.

    The relative error is about the same for finite input of any size, because the scale spans float32. NaN counts
    as 0. Magnitudes beyond 2^100, including infinity, count as 2^100. Vectors below 2^-100 become zero.

    Raises:
        BadInput: no such code.
    """

    dim: int
    bits: float = 4.25
    effort: str = "normal"

    def __post_init__(self) -> None:
        if self.effort not in EFFORTS:
            raise BadInput(f"no effort {self.effort!r}", f"one of {', '.join(EFFORTS)}")
        if self.bits % 1 not in {0, 0.25}:
            raise BadInput(f"no Voronoi code of {self.bits} bits", "2.25, 3.25, 4.25, 5.25 or 6.25")
        factor(self.dim)
        _ = self.layout

    @cached_property
    def layout(self) -> Layout:
        """The layout of a packed row."""
        return Layout(self.dim, int(self.bits))

    @property
    def bits_per_vector(self) -> int:
        """Stored bits of one vector."""
        return 8 * self.layout.nbytes

    @property
    def row_bytes(self) -> int:
        """Bytes of a packed row."""
        return self.layout.nbytes

    def encode(self, x: mx.array) -> mx.array:
        """Encode ``[..., dim]`` of any float type."""
        if x.shape[-1] != self.dim:
            raise BadInput(f"vectors of {x.shape[-1]} values, a codec for {self.dim}")
        if not x.size:
            return mx.zeros((*x.shape[:-1], self.row_bytes), mx.uint8)
        flat = x.reshape(-1, self.dim)
        size = max(1, TOGETHER // self.dim)
        chunks = [self._encode_chunk(flat[i : i + size]) for i in range(0, flat.shape[0], size)]
        return mx.concatenate(chunks).reshape(*x.shape[:-1], self.row_bytes)

    def decode(self, rows: mx.array, dtype: mx.Dtype = mx.float32) -> mx.array:
        """Return ``[..., dim]``; values that are too large for ``dtype`` become its largest."""
        y = self.decode_rotated(rows)
        x = hadamard.unrotate(y) if y.size else y
        largest = mx.finfo(dtype).max
        return x if dtype == mx.float32 else mx.clip(x, -largest, largest).astype(dtype)

    def decode_rotated(self, rows: mx.array) -> mx.array:
        """Return the vectors, still rotated, float32: codewords times their steps."""
        if rows.shape[-1] != self.row_bytes or rows.dtype != mx.uint8:
            raise BadInput(f"rows of {rows.shape[-1]} bytes ({rows.dtype}), this codec has {self.row_bytes}")
        if not rows.size:
            return mx.zeros((*rows.shape[:-1], self.dim))
        if computes_on_cpu():
            return self._decoded(rows)
        y = graph.decode(rows.reshape(-1, self.row_bytes), self.layout)
        return y.reshape(*rows.shape[:-1], self.dim)

    def rotate(self, x: mx.array) -> mx.array:
        """Return the Hadamard rotation of ``[..., dim]``, float32."""
        return hadamard.rotate(x)

    def unrotate(self, y: mx.array) -> mx.array:
        """Undo ``rotate``."""
        return hadamard.unrotate(y)

    def roundtrip(self, x: mx.array) -> mx.array:
        """Return ``decode(encode(x))`` in the type of ``x``."""
        return self.decode(self.encode(x), x.dtype)

    def _decoded(self, rows: mx.array) -> mx.array:
        mx.eval(rows)
        *lead, n, nbytes = (1, *rows.shape) if rows.ndim == 1 else rows.shape
        parts = decoder.decode(np.asarray(rows).reshape(-1, n, nbytes), self.layout)
        y = mx.array(parts).reshape(*lead, self.dim, n).swapaxes(-1, -2)
        return y.reshape(*rows.shape[:-1], self.dim)

    def _encode_chunk(self, x: mx.array) -> mx.array:
        effort = EFFORTS[self.effort][self.layout.bits]
        if computes_on_cpu():
            return mx.array(encoder.encode(np.asarray(x.astype(mx.float32)), self.layout, effort))
        return graph.encode(x, self.layout, effort)


def computes_on_cpu() -> bool:
    """Return whether codes are computed in NumPy at once, and not by a graph that a GPU evaluates later."""
    return mx.default_device().type == mx.cpu
