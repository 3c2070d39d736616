"""The codec id: the line that a saved cache carries, so that its rows are read as they were written."""

from dataclasses import dataclass

from engine.codec.voronoi import VoronoiCodec
from engine.errors import BadInput
from engine.mx import DTYPES

FAMILY = "e8v"
FORMAT = 1


@dataclass(frozen=True)
class CodecId:
    """What reading packed rows takes, and what going on writing them does.

    Attributes:
        rate: bits a value, as :class:``VoronoiCodec`` takes them.
        dims: the head sizes of keys and values.
        dtype: the type that the vectors came in, by name.
        effort: how hard the encoder searches.
    """

    rate: float
    dims: tuple[int, ...]
    dtype: str
    effort: str

    def __str__(self) -> str:
        dims = ",".join(map(str, self.dims))
        return (
            f"{FAMILY};format={FORMAT};rate={self.rate};dims={dims};dtype={self.dtype};effort={self.effort}"
        )

    @classmethod
    def parse(cls, text: str) -> "CodecId":
        """Return the id that ``text`` writes.

        Raises:
            BadInput: it is none, or one of another format.
        """
        family, *fields = text.split(";")
        try:
            values = dict(field.split("=") for field in fields)
            dims = tuple(int(dim) for dim in values["dims"].split(","))
            parsed = cls(float(values["rate"]), dims, values["dtype"], values["effort"])
            version = int(values["format"])
        except (KeyError, ValueError) as error:
            raise BadInput(f"cannot read codec id {text!r}") from error
        if (family, version) != (FAMILY, FORMAT) or parsed.dtype not in DTYPES or len(dims) != len("kv"):
            raise BadInput(f"saved with codec {text!r}, this version reads {FAMILY} format {FORMAT}")
        return parsed

    def codecs(self) -> tuple[VoronoiCodec, ...]:
        """Return the codecs of keys and values."""
        return tuple(VoronoiCodec(dim, self.rate, self.effort) for dim in self.dims)
