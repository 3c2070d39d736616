"""Rules about codecs on vectors: what Shannon allows, and every stored bit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from bridge.evidence.floors import LARGEST, floor_of
from bridge.evidence.kinds import CodecRow
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rule import rule

# Where fewer bits than the rate-distortion function allows are claimed, the sample itself leaves this much
# room (in standard errors), or the arithmetic is wrong.
_SIGMAS = 6.0

RAW_BITS = 16.0


@rule("BAD_ROW")
def bad_row(index: ReportIndex) -> Iterator[str]:
    """Rows say what decides how much they store: bits, and affine ones their group."""
    for i, row in enumerate(index.rows):
        needs = {"affine": (row.bits, row.group), "voronoi": (row.bits,)}.get(row.codec, ())
        if not all(needs):
            yield f"row {i} is {row.codec} and has no usable {'bits and group' if len(needs) > 1 else 'bits'}"


@rule("ROW_REPEATED")
def row_repeated(index: ReportIndex) -> Iterator[str]:
    """A code stands there once for each array."""
    names = Counter(
        (row.codec, row.bits, row.group, row.rotated, row.dim, row.distribution) for row in index.rows
    )
    for name, times in names.items():
        if times > 1:
            yield f"{name[0]} at {name[1]} bits stands there {times} times for {name[-1]}"


@rule("SPREAD_IMPOSSIBLE")
def spread_impossible(index: ReportIndex) -> Iterator[str]:
    """The standard error of a mean of what is never negative is at most that mean: a larger one hides a lie."""
    for i, row in enumerate(index.rows):
        if row.rel_mse_stderr > row.rel_mse * (1 + 1e-6) or row.n_vectors < 1:
            yield f"row {i}: {row.n_vectors} errors of mean {row.rel_mse:.3g} cannot spread so far"


@rule("RATE_IMPOSSIBLE")
def rate_impossible(index: ReportIndex) -> Iterator[str]:
    """No code stores a Gaussian source at R bits with less error than 2^-2R (Shannon 1959)."""
    for i, row in enumerate(index.rows):
        limit = _limit(row.stored_bits_per_value)
        if row.distribution == "gaussian" and row.rel_mse + _SIGMAS * row.rel_mse_stderr < limit:
            bits = row.stored_bits_per_value
            yield f"row {i} claims {row.rel_mse:.3g} at {bits:g} bits; {limit:.3g} is the least"


@rule("RATE_OMITS_SIDE_INFORMATION")
def rate_omits_side_information(index: ReportIndex) -> Iterator[str]:
    """Scales and biases are stored: bits that are left out make every comparison false."""
    for i, row in enumerate(index.rows):
        least = _least(row)
        if least is None:
            yield f"row {i} is {row.codec}, and nothing here knows what that stores"
        elif row.stored_bits_per_value < least - 1e-9:
            yield f"row {i} counts {row.stored_bits_per_value:g} bits; with scale and bias it stores {least:g}"


def _least(row: CodecRow) -> float | None:
    """Return the least bits a value that a row's codec stores; 0 where bad_row says that it cannot be known."""
    dim, (lattice, _, q_range) = row.dim or LARGEST, row.codec.lower().partition(" q")
    if row.codec == "raw":
        return RAW_BITS
    if row.codec == "affine":
        return row.bits + 32 / row.group if row.bits and row.group else 0.0
    if row.codec == "voronoi":
        return floor_of(f"e8v@{row.bits}.25", dim) if row.bits else 0.0
    return floor_of(f"{lattice}@q{q_range}", dim)


@rule("LIMIT_WRONG")
def limit_wrong(index: ReportIndex) -> Iterator[str]:
    """The limit stands there as it is."""
    for i, row in enumerate(index.rows):
        limit = _limit(row.stored_bits_per_value)
        if not math.isclose(row.limit, limit, rel_tol=1e-3):
            yield f"row {i} gives {row.limit:.4g} as the limit; it is {limit:.4g}"


def _limit(bits: float) -> float:
    return math.exp2(-2 * bits)
