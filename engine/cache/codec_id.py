"""The codec id: a line in a saved cache, so that its rows are read as they were written."""

from dataclasses import dataclass
from functools import cached_property

from engine.cache.spec import parse
from engine.codec.kinds import make_codec
from engine.codec.row_codec import RowCodec
from engine.errors import BadInput
from engine.mx import DTYPES

WHOLE, PACKED = "e8v", "packed"  # keys and values in Voronoi codes of the same rate; all other pairs
FORMAT = 1


@dataclass(frozen=True)
class CodecId:
    """The facts that are needed to read packed rows, and to append to them."""

    spec: str  # the cache spec
    dims: tuple[int, ...]  # the head sizes of keys and values
    dtype: str  # the type that the vectors came in, by name

    def __str__(self) -> str:
        dims = ",".join(map(str, self.dims))
        parsed = parse(self.spec)
        if parsed.family != WHOLE:
            return f"{PACKED};format={FORMAT};spec={self.spec};dims={dims};dtype={self.dtype}"
        rate, effort = parsed.fields["bits"], parsed.fields.get("effort", "normal")
        return f"{WHOLE};format={FORMAT};rate={rate};dims={dims};dtype={self.dtype};effort={effort}"

    @classmethod
    def parse(cls, text: str) -> "CodecId":
        """Parse an id.

        Raises:
            BadInput: it cannot be read, or is of another format.
        """
        family, *fields = text.split(";")
        try:
            values = dict(field.split("=", 1) for field in fields)
            dims = tuple(int(dim) for dim in values["dims"].split(","))
            dtype, version = values["dtype"], int(values["format"])
            spec = f"{WHOLE}@{values['rate']}:{values['effort']}" if family == WHOLE else values["spec"]
        except (KeyError, ValueError) as error:
            raise BadInput(f"cannot read codec id {text!r}") from error
        known = family in (WHOLE, PACKED) and version == FORMAT and dtype in DTYPES
        if not known or len(dims) != len("kv"):
            raise BadInput(
                f"saved with codec {text!r}, this version reads {WHOLE} and {PACKED} format {FORMAT}"
            )
        parse(spec)
        return cls(spec, dims, dtype)

    @cached_property
    def codecs(self) -> tuple[RowCodec, RowCodec]:
        """The codecs of keys and values."""
        sides = zip(parse(self.spec).sides, self.dims, strict=True)
        keys, values = (make_codec(side, dim, self.dtype) for side, dim in sides)
        return keys, values
