"""The rate-distortion table: what an error costs in bits that are really stored."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from engine.codec.affine import AffineCodec
from engine.codec.sources import draw
from engine.mx import mx

KIND = "kakeya.codec-rd"


def table(
    *,
    dim: int,
    n_vectors: int,
    seed: int,
    bits: Iterable[int],
    groups: Iterable[int],
    distributions: Iterable[str],
) -> list[dict[str, Any]]:
    """Return one row for each codec and distribution.

    ``rel_mse`` is the mean over vectors of ``||x - x'||^2 / ||x||^2``, ``rel_mse_stderr`` the standard error
    of that mean; ``stored_bits_per_value`` is eight times the bytes of the packed arrays over the number of
    values; ``limit`` is 2^-2R at that rate: what no code can beat on Gaussian data.
    """
    codecs = list(_codecs(dim, tuple(bits), tuple(groups)))
    rows = []
    for distribution in distributions:
        x = mx.array(draw(distribution, n_vectors, dim, seed))
        for codec in codecs:
            packed = codec.encode(x)
            rows.append(
                {
                    "codec": "affine",
                    "bits": codec.bits,
                    "group": codec.group,
                    "rotated": codec.rotated,
                    "distribution": distribution,
                    "n_vectors": n_vectors,
                    **measure(x, codec.decode(packed), packed.nbytes),
                }
            )
    return rows


def measure(x: mx.array, decoded: mx.array, nbytes: int) -> dict[str, float]:
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


def _codecs(dim: int, bits: tuple[int, ...], groups: tuple[int, ...]) -> Iterator[AffineCodec]:
    for group in (group for group in groups if group <= dim):
        for width in bits:
            for rotated in (False, True):
                yield AffineCodec(dim, width, group, rotated)
