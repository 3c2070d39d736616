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
from engine.codec.classic import ClassicCodec
from engine.codec.spec import BITS, BLOCK_SIZES
from engine.codec.voronoi import VoronoiCodec
from engine.errors import BadInput
from engine.mx import mx

KIND = kinds.CODEC_RD


@dataclass(frozen=True)
class RatePlan:
    """Which codecs are measured."""

    codecs: Sequence[str]  # of `raw` (bfloat16), `affine`, `classic` and `voronoi`
    bits: Sequence[int]  # of affine and Voronoi codes; those that a codec does not have are passed over
    groups: Sequence[int]  # of affine codes
    q_ranges: Sequence[int]  # of classic codes
    effort: str  # of the Voronoi encoder


# A function from vectors, ``[n, dim]``, to the decoded vectors and the number of stored bytes.
Run = Callable[[mx.array], tuple[mx.array, float]]
# A row's fields about a codec, and the codec. With ``nominal``, the bits come from a formula, and nothing is stored.
Entry = tuple[dict[str, Any], Run]


def _entry(
    codec: str, bits: int, run: Run, group: int = 0, *, rotated: bool = False, nominal: bool = False
) -> Entry:
    return {"codec": codec, "bits": bits, "group": group, "rotated": rotated, "nominal": nominal}, run


def table(
    data: Mapping[str, np.ndarray],
    plan: RatePlan,
    on_start: Callable[[int], None] = lambda _: None,
    on_row: Callable[[dict[str, Any]], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Return one row for each codec and each array of vectors, ``[n, dim]``.

    ``rel_mse`` is the mean over vectors of ``||x - x'||^2 / ||x||^2``, and ``rel_mse_stderr`` the standard error of
    that mean. ``stored_bits_per_value`` is eight times the bytes of the packed arrays over the number of values.
    ``limit`` is 2^-2R at that rate, which no code can beat on Gaussian data. ``started_s`` is in seconds since the
    call. ``on_start`` gets the number of rows, and ``on_row`` each completed row.
    """
    on_start(sum(len(list(entries(array.shape[-1], plan))) for array in data.values()))
    rows, began = [], time.perf_counter()
    for distribution, array in data.items():
        x = mx.array(array)
        for columns, run in entries(array.shape[-1], plan):
            started = time.perf_counter() - began
            decoded, nbytes = run(x)
            about = {"distribution": distribution, "n_vectors": x.shape[0], "dim": x.shape[-1]}
            rows.append({**columns, **about, **measure(x, decoded, nbytes), "started_s": started})
            on_row(rows[-1])
    if not rows:
        raise BadInput(
            "none of these codecs has any of these sizes", "choose other --codecs, --bits or --groups"
        )
    return rows


def entries(dim: int, plan: RatePlan) -> Iterator[Entry]:
    """Yield the codecs of a plan that exist at this size."""
    if "raw" in plan.codecs:
        yield _entry("raw", 16, lambda x: (x.astype(mx.bfloat16).astype(mx.float32), 2 * x.size))
    if "affine" in plan.codecs:
        groups = [group for group in plan.groups if dim % group == 0]
        for group, bits, rotated in itertools.product(groups, plan.bits, (False, True)):
            run = _stored(AffineCodec(dim, bits, group, rotated))
            yield _entry("affine", bits, run, group, rotated=rotated)
    if "classic" in plan.codecs and dim & (dim - 1) == 0:
        for lattice, q in itertools.product(sorted(BLOCK_SIZES), plan.q_ranges):
            run = _nominal(ClassicCodec(lattice, dim, q))
            yield _entry(f"{lattice} Q{q}", q, run, rotated=True, nominal=True)
    if "voronoi" in plan.codecs:
        for bits in (bits for bits in plan.bits if bits in BITS):
            yield _entry("voronoi", bits, _stored(VoronoiCodec(dim, bits, plan.effort)), rotated=True)


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


def _stored(codec: Any) -> Run:
    def run(x: mx.array) -> tuple[mx.array, float]:
        rows = codec.encode(x)
        return codec.decode(rows), rows.nbytes

    return run


def _nominal(codec: ClassicCodec) -> Run:
    return lambda x: (codec.roundtrip(x), codec.bits_per_vector * x.shape[0] / 8)
