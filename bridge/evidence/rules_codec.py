"""Rules about codecs on vectors: what Shannon allows, and every stored bit."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bridge.evidence.view import View

# Where fewer bits than the rate-distortion function allows are claimed, the sample itself leaves this much
# room (in standard errors), or the arithmetic is wrong.
_SIGMAS = 6.0


def bad_row(view: View) -> Iterator[str]:
    """Affine rows say bits and group."""
    for i, row in enumerate(view.rows):
        if row.codec == "affine" and not (row.bits and row.group):
            yield f"row {i} is affine and has no usable bits and group"


def spread_impossible(view: View) -> Iterator[str]:
    """The standard error of a mean of what is never negative is at most that mean: a larger one hides a lie."""
    for i, row in enumerate(view.rows):
        if row.rel_mse_stderr > row.rel_mse * (1 + 1e-6) or row.n_vectors < 1:
            yield f"row {i}: {row.n_vectors} errors of mean {row.rel_mse:.3g} cannot spread so far"


def rate_impossible(view: View) -> Iterator[str]:
    """No code stores a Gaussian source at R bits with less error than 2^-2R (Shannon 1959)."""
    for i, row in enumerate(view.rows):
        limit = _limit(row.stored_bits_per_value)
        if row.distribution == "gaussian" and row.rel_mse + _SIGMAS * row.rel_mse_stderr < limit:
            bits = row.stored_bits_per_value
            yield f"row {i} claims {row.rel_mse:.3g} at {bits:g} bits; {limit:.3g} is the least"


def rate_omits_side_information(view: View) -> Iterator[str]:
    """Affine codes keep a scale and a bias a group: bits that are left out make every comparison false."""
    for i, row in enumerate(view.rows):
        if row.codec != "affine" or not (row.bits and row.group):
            continue
        least = row.bits + 32 / row.group
        if row.stored_bits_per_value < least - 1e-9:
            yield f"row {i} counts {row.stored_bits_per_value:g} bits; with scale and bias it stores {least:g}"


def limit_wrong(view: View) -> Iterator[str]:
    """The limit stands there as it is."""
    for i, row in enumerate(view.rows):
        limit = _limit(row.stored_bits_per_value)
        if not math.isclose(row.limit, limit, rel_tol=1e-3):
            yield f"row {i} gives {row.limit:.4g} as the limit; it is {limit:.4g}"


def _limit(bits: float) -> float:
    return math.exp2(-2 * bits)
