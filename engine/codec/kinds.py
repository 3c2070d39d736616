"""The codecs by the family of their specs: the only table to add a codec to."""

from collections.abc import Callable
from typing import Any, Protocol

from bridge.reports.cache_spec import CacheSpec
from engine.codec.affine import AffineCodec
from engine.codec.classic import ClassicCodec
from engine.codec.uncompressed import RawCodec
from engine.codec.voronoi import VoronoiCodec
from engine.mx import mx


class RowCodec(Protocol):
    """A codec that packed caches can store one side in: keys or values, as rows of bytes.

    Inner products and weighted sums are the same with the rotation on, so attention works there.
    """

    @property
    def dim(self) -> int:
        """Values in a vector."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""

    def pack(self, x: mx.array) -> mx.array:
        """Return the rows of ``[..., dim]`` of any float type, uint8 ``[..., row_bytes]``."""

    def unpack(self, rows: mx.array, dtype: mx.Dtype = ...) -> mx.array:
        """Return the vectors of rows, ``[..., dim]``."""

    def unpack_rotated(self, rows: mx.array) -> mx.array:
        """Return the vectors of rows with the codec's rotation still on, float32 ``[..., dim]``."""

    def rotate(self, x: mx.array) -> mx.array:
        """Return ``[..., dim]`` with the codec's rotation, an orthonormal one, float32."""

    def unrotate(self, y: mx.array) -> mx.array:
        """Undo :meth:``rotate``."""


Make = Callable[[CacheSpec, int, str], Any]

# Maps a spec, a head size and the name of the vectors' type to a codec: a RowCodec if the spec packs, else an
# object with `roundtrip`.
CODECS: dict[str, Make] = {
    "raw": lambda _, dim, dtype: RawCodec(dim, dtype),
    "e8v": lambda spec, dim, _: VoronoiCodec(
        dim, float(spec.fields["bits"]), spec.fields.get("effort", "normal")
    ),
    "classic": lambda spec, dim, _: ClassicCodec(spec.fields["lattice"], dim, int(spec.fields["q_range"])),
    "affine": lambda spec, dim, _: AffineCodec(dim, int(spec.fields["bits"]), int(spec.fields["group"])),
}


def make_codec(spec: CacheSpec, dim: int, dtype: str = "float32") -> Any:
    """Return the codec of a spec for vectors of ``dim`` values that come as ``dtype``.

    Raises:
        BadInput: there is none for this head size.
    """
    return CODECS[spec.family](spec, dim, dtype)
