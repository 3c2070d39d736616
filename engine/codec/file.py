"""Encoded arrays in files: a safetensors file of packed rows, each array's codec in the metadata."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from engine.codec.voronoi import VoronoiCodec, VoronoiPacked
from engine.errors import BadInput
from engine.mx import DTYPES, mx

MARK, FORMAT = "kakeya-codec", "e8v/1"


@dataclass(frozen=True)
class Held:
    """An array of a file: shape and type once decoded, codec (None if stored as it is), bytes."""

    shape: tuple[int, ...]
    dtype: str
    codec: VoronoiCodec | None
    nbytes: int

    @property
    def bits_per_value(self) -> float:
        """Stored bits over the number of values."""
        values = 1
        for size in self.shape:
            values *= size
        return 8 * self.nbytes / max(values, 1)


def read(path: Path) -> tuple[dict[str, mx.array], dict[str, str]]:
    """Return the arrays of a ``.npy`` or ``.safetensors`` file, and its metadata.

    Raises:
        BadInput: no such file, another kind of file, or a damaged one.
    """
    if path.suffix not in {".npy", ".safetensors"}:
        raise BadInput(f"{path} is neither .npy nor .safetensors")
    if not path.is_file():
        raise BadInput(f"there is no file {path}")
    try:
        if path.suffix == ".npy":
            arrays, metadata = {"array": cast("mx.array", mx.load(str(path)))}, dict[str, str]()
        else:
            held: Any = mx.load(str(path), return_metadata=True)
            arrays, metadata = held
        mx.eval(arrays)
    except Exception as error:
        raise BadInput(f"{path} cannot be read, it may be damaged: {error}") from error
    return arrays, metadata


def write(path: Path, arrays: dict[str, mx.array], metadata: dict[str, str] | None = None) -> None:
    """Write arrays atomically; ``.npy`` takes one array."""
    if path.suffix not in {".npy", ".safetensors"}:
        raise BadInput(f"{path} is neither .npy nor .safetensors")
    if path.suffix == ".npy" and len(arrays) != 1:
        raise BadInput(f"a .npy file holds one array, here are {len(arrays)}", "write .safetensors")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            part = Path(folder) / path.name
            if path.suffix == ".npy":
                mx.save(str(part), next(iter(arrays.values())))
            else:
                mx.save_safetensors(str(part), arrays, metadata or {})
            part.replace(path)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from error


def encode(
    arrays: dict[str, mx.array], rate: float, effort: str
) -> tuple[dict[str, mx.array], dict[str, str]]:
    """Return packed rows and metadata; arrays that are not of floats, or have no such codec, are refused."""
    packed, metadata = {}, {MARK: FORMAT}
    for name, x in arrays.items():
        dtype = str(x.dtype).removeprefix("mlx.core.")
        if dtype not in DTYPES or x.ndim == 0:
            raise BadInput(f"{name} is {dtype} of {x.ndim} axes", f"arrays of {', '.join(DTYPES)}")
        packed[name] = VoronoiCodec(x.shape[-1], rate, effort).encode(x).rows
        metadata[f"codec.{name}"] = f"{rate} {x.shape[-1]} {dtype}"
    return packed, metadata


def decode(arrays: dict[str, mx.array], metadata: dict[str, str]) -> dict[str, mx.array]:
    """Return what :func:``encode`` was given, as the codec kept it."""
    return {
        name: codec.decode(VoronoiPacked(rows), DTYPES[dtype])
        for name, rows, codec, dtype in ((n, r, *_codec(n, r, metadata)) for n, r in arrays.items())
    }


def info(arrays: dict[str, mx.array], metadata: dict[str, str]) -> dict[str, Held]:
    """Describe a file's content: encoded arrays if it has the codec's mark, otherwise plain ones."""
    if MARK not in metadata:
        plain = {name: str(x.dtype).removeprefix("mlx.core.") for name, x in arrays.items()}
        return {name: Held(x.shape, plain[name], None, x.nbytes) for name, x in arrays.items()}
    found = {}
    for name, rows in arrays.items():
        codec, dtype = _codec(name, rows, metadata)
        found[name] = Held((*rows.shape[:-1], codec.dim), dtype, codec, rows.nbytes)
    return found


def _codec(name: str, rows: mx.array, metadata: dict[str, str]) -> tuple[VoronoiCodec, str]:
    if metadata.get(MARK) != FORMAT:
        raise BadInput(f"not encoded by this program as {FORMAT}: the mark is {metadata.get(MARK)!r}")
    try:
        rate, dim, dtype = metadata[f"codec.{name}"].split()
        codec = VoronoiCodec(int(dim), float(rate))
    except (KeyError, ValueError) as error:
        raise BadInput(f"the file does not say how {name} is encoded") from error
    if (
        dtype not in DTYPES
        or rows.dtype != mx.uint8
        or rows.ndim == 0
        or rows.shape[-1] != codec.layout.nbytes
    ):
        raise BadInput(f"the rows of {name} are not those of its codec")
    return codec, dtype
