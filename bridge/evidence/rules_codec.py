"""Rules about codecs on vectors: the rate-distortion limit, and all stored bits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from bridge.evidence.floors import LARGEST, floor_of
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rows import CodecRow
from bridge.evidence.rule import rule

# Where fewer bits than the rate-distortion function allows are claimed, the sample itself leaves this much
# room (in standard errors), or the arithmetic is wrong.
_SIGMAS = 6.0

RAW_BITS = 16.0


@rule("BAD_ROW")
def bad_row(index: ReportIndex) -> Iterator[str]:
    """A row must name the bits of its code, and the group if the code is affine."""
    for i, row in enumerate(index.rows):
        needs = {"affine": (row.bits, row.group), "voronoi": (row.bits,)}.get(row.codec, ())
        if not all(needs):
            yield f"row {i} is {row.codec} and has no usable {'bits and group' if len(needs) > 1 else 'bits'}"


@rule("ROW_REPEATED")
def row_repeated(index: ReportIndex) -> Iterator[str]:
    """Each code must appear once for each distribution."""
    names = Counter(
        (row.codec, row.bits, row.group, row.rotated, row.dim, row.distribution) for row in index.rows
    )
    for name, times in names.items():
        if times > 1:
            yield f"{name[0]} at {name[1]} bits appears {times} times for {name[-1]}"


@rule("SPREAD_IMPOSSIBLE")
def spread_impossible(index: ReportIndex) -> Iterator[str]:
    """The standard error of a mean of errors that are never negative cannot exceed that mean."""
    for i, row in enumerate(index.rows):
        if row.rel_mse_stderr > row.rel_mse * (1 + 1e-6) or row.n_vectors < 1:
            yield f"row {i}: the standard error {row.rel_mse_stderr:.3g} exceeds the mean error {row.rel_mse:.3g}"


@rule("RATE_IMPOSSIBLE")
def rate_impossible(index: ReportIndex) -> Iterator[str]:
    """No code stores a Gaussian source at R bits with less error than 2^-2R (Shannon 1959)."""
    for i, row in enumerate(index.rows):
        limit = _limit(row.stored_bits_per_value)
        if row.distribution == "gaussian" and row.rel_mse + _SIGMAS * row.rel_mse_stderr < limit:
            bits = row.stored_bits_per_value
            yield f"row {i} has the error {row.rel_mse:.3g} at {bits:g} bits; no code errs by less than {limit:.3g}"


@rule("RATE_OMITS_SIDE_INFORMATION")
def rate_omits_side_information(index: ReportIndex) -> Iterator[str]:
    """The stored bits must include scales and biases."""
    for i, row in enumerate(index.rows):
        least = _least(row)
        if least is None:
            yield f"row {i}: the gate does not know the format of the codec {row.codec}"
        elif row.stored_bits_per_value < least - 1e-9:
            yield f"row {i} counts {row.stored_bits_per_value:g} bits; with scale and bias the format takes {least:g}"


def _least(row: CodecRow) -> float | None:
    """Return the least bits a value that a row's codec stores; 0 if bad_row says that it cannot be known."""
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
    """The limit must be 2^-2R at the stored bits R."""
    for i, row in enumerate(index.rows):
        limit = _limit(row.stored_bits_per_value)
        if not math.isclose(row.limit, limit, rel_tol=1e-3):
            yield f"row {i} has the limit {row.limit:.4g}; it is {limit:.4g}"


def _limit(bits: float) -> float:
    return math.exp2(-2 * bits)
