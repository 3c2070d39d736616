"""The rate-distortion table: error and stored bits of each codec."""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bridge.reports import kinds
from engine.codec.affine import AffineCodec
from engine.codec.classic import SIZES, ClassicCodec
from engine.codec.spec import BITS
from engine.codec.voronoi import VoronoiCodec
from engine.errors import BadInput
from engine.mx import mx

KIND = kinds.CODEC_RD


@dataclass(frozen=True)
class RatePlan:
    """Which codecs are measured.

    Attributes:
        codecs: of ``raw`` (bfloat16), ``affine``, ``classic`` and ``voronoi``.
        bits: of affine and Voronoi codes; those that a codec does not have are passed over.
        groups: of affine codes.
        q_ranges: of classic codes.
        effort: of the Voronoi encoder.
    """

    codecs: Sequence[str]
    bits: Sequence[int]
    groups: Sequence[int]
    q_ranges: Sequence[int]
    effort: str


@dataclass(frozen=True)
class Entry:
    """A codec in the table: its name, and a function from ``[n, dim]`` to the decoded array and its bytes."""

    codec: str
    bits: int
    run: Callable[[mx.array], tuple[mx.array, float]]
    group: int = 0
    rotated: bool = False
    nominal: bool = False

    @property
    def columns(self) -> dict[str, Any]:
        """What a row says of the codec. ``nominal``: the bits are the formula's, nothing is stored."""
        names = ("codec", "bits", "group", "rotated", "nominal")
        return {name: getattr(self, name) for name in names}


def table(
    data: Mapping[str, np.ndarray],
    plan: RatePlan,
    on_start: Callable[[int], None] = lambda _: None,
    on_row: Callable[[dict[str, Any]], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Return one row for each codec and each array of vectors, ``[n, dim]``.

    ``rel_mse`` is the mean over vectors of ``||x - x'||^2 / ||x||^2``, ``rel_mse_stderr`` the standard error
    of that mean; ``stored_bits_per_value`` is eight times the bytes of the packed arrays over the number of
    values; ``limit`` is 2^-2R at that rate: what no code can beat on Gaussian data; ``started_s`` is in seconds since
    the call. ``on_start`` gets the number of rows, and ``on_row`` each row once it is there.
    """
    on_start(sum(len(list(entries(array.shape[-1], plan))) for array in data.values()))
    rows, began = [], time.perf_counter()
    for distribution, array in data.items():
        x = mx.array(array)
        for entry in entries(array.shape[-1], plan):
            started = time.perf_counter() - began
            decoded, nbytes = entry.run(x)
            about = {"distribution": distribution, "n_vectors": x.shape[0], "dim": x.shape[-1]}
            rows.append({**entry.columns, **about, **measure(x, decoded, nbytes), "started_s": started})
            on_row(rows[-1])
    if not rows:
        raise BadInput(
            "none of these codecs has any of these sizes", "choose other --codecs, --bits or --groups"
        )
    return rows


def entries(dim: int, plan: RatePlan) -> Iterator[Entry]:
    """Yield the codecs of a plan that exist at this size."""
    for name, of_codec in ENTRIES.items():
        if name in plan.codecs:
            yield from of_codec(dim, plan)


def _raw(dim: int, plan: RatePlan) -> Iterator[Entry]:  # noqa: ARG001
    yield Entry("raw", 16, lambda x: (x.astype(mx.bfloat16).astype(mx.float32), 2 * x.size))


def _affine(dim: int, plan: RatePlan) -> Iterator[Entry]:
    groups = [group for group in plan.groups if dim % group == 0]
    for group, bits, rotated in itertools.product(groups, plan.bits, (False, True)):
        yield Entry("affine", bits, _stored(AffineCodec(dim, bits, group, rotated)), group, rotated)


def _classic(dim: int, plan: RatePlan) -> Iterator[Entry]:
    lattices = [] if dim & (dim - 1) else sorted(SIZES)
    for lattice, q in itertools.product(lattices, plan.q_ranges):
        yield Entry(f"{lattice} Q{q}", q, _nominal(ClassicCodec(lattice, dim, q)), rotated=True, nominal=True)


def _voronoi(dim: int, plan: RatePlan) -> Iterator[Entry]:
    for bits in (bits for bits in plan.bits if bits in BITS):
        yield Entry("voronoi", bits, _stored(VoronoiCodec(dim, bits, plan.effort)), rotated=True)


ENTRIES = {"raw": _raw, "affine": _affine, "classic": _classic, "voronoi": _voronoi}


def measure(x: mx.array, decoded: mx.array, nbytes: float) -> dict[str, float]:
    """Return rate and distortion of ``decoded`` against ``x``, both ``[n, dim]``, stored in ``nbytes``."""
    rate = 8 * nbytes / x.size
    errors = np.array(rel_errors(x, decoded), dtype=np.float64)
    return {
        "stored_bits_per_value": rate,
        "rel_mse": float(errors.mean()),
        "rel_mse_stderr": float(errors.std(ddof=1) / math.sqrt(errors.size)),
        "limit": math.exp2(-2 * rate),
    }


def rel_errors(x: mx.array, decoded: mx.array) -> mx.array:
    """Return ``||x - x'||^2 / ||x||^2`` of each vector, float32 ``[n]``; 0 for a zero vector kept at zero."""
    error = mx.square(x - decoded).sum(axis=-1)
    return error / mx.maximum(mx.square(x).sum(axis=-1), mx.finfo(mx.float32).smallest_normal)


def _stored(codec: Any) -> Callable[[mx.array], tuple[mx.array, float]]:
    def run(x: mx.array) -> tuple[mx.array, float]:
        packed = codec.encode(x)
        return codec.decode(packed), packed.nbytes

    return run


def _nominal(codec: ClassicCodec) -> Callable[[mx.array], tuple[mx.array, float]]:
    return lambda x: (codec.roundtrip(x), codec.bits_per_vector * x.shape[0] / 8)
