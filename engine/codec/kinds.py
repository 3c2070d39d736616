"""The codecs, by the family of their specs. This is the only table of codecs."""

from collections.abc import Callable
from typing import Any

from bridge.reports.cache_spec import CacheSpec
from engine.codec.affine import AffineCodec
from engine.codec.classic import ClassicCodec
from engine.codec.row_codec import RawCodec
from engine.codec.voronoi import VoronoiCodec

Make = Callable[[CacheSpec, int, str], Any]

# A function from a spec, a head size and the name of the vectors' type to a codec: a RowCodec if the spec packs,
# otherwise an object with `roundtrip`.
CODECS: dict[str, Make] = {
    "raw": lambda _, dim, dtype: RawCodec(dim, dtype),
    "e8v": lambda spec, dim, _: VoronoiCodec(
        dim, float(spec.fields["bits"]), spec.fields.get("effort", "normal")
    ),
    "classic": lambda spec, dim, _: ClassicCodec(spec.fields["lattice"], dim, int(spec.fields["q_range"])),
    "affine": lambda spec, dim, _: AffineCodec(dim, int(spec.fields["bits"]), int(spec.fields["group"])),
}


def make_codec(spec: CacheSpec, dim: int, dtype: str = "float32") -> Any:
    """Return the codec of a spec for vectors of ``dim`` values of type ``dtype``.

    Raises:
        BadInput: the codec does not exist for this head size.
    """
    return CODECS[spec.family](spec, dim, dtype)
