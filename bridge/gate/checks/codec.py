"""Checks of codecs: possible rates and errors, and the same values for every codec."""

import math
from collections.abc import Iterator

from bridge.gate.index import ReportIndex, check
from bridge.reports.kinds import CODEC_RD, KV_QUANT, RAW

# A sample's mean error may lie below the limit by chance, by at most this many of its standard errors.
_SIGMAS = 6.0
# Tolerance for sums of the same float32 values in another order.
_SUMS = 1e-5


@check("RATE_IMPOSSIBLE", CODEC_RD)
def rates_are_possible(index: ReportIndex) -> Iterator[str]:
    """A Gaussian source at R bits has at least the error 2^-2R (Shannon 1959)."""
    for i, row in enumerate(index.rows):
        limit = _limit(row.stored_bits_per_value)
        if row.distribution == "gaussian" and row.rel_mse + _SIGMAS * row.rel_mse_stderr < limit:
            bits = row.stored_bits_per_value
            yield f"row {i} has the error {row.rel_mse:.3g} at {bits:g} bits; no code errs by less than {limit:.3g}"


@check("SPREAD_IMPOSSIBLE", CODEC_RD)
def errors_spread_possibly(index: ReportIndex) -> Iterator[str]:
    """The standard error of non-negative errors does not exceed their mean."""
    for i, row in enumerate(index.rows):
        if row.rel_mse_stderr > row.rel_mse * (1 + 1e-6) or row.n_vectors < 1:
            yield f"row {i}: the standard error {row.rel_mse_stderr:.3g} exceeds the mean error {row.rel_mse:.3g}"


@check("LIMIT_WRONG", CODEC_RD)
def limits_follow_from_bits(index: ReportIndex) -> Iterator[str]:
    """The limit is 2^-2R at the stored bits R."""
    for i, row in enumerate(index.rows):
        limit = _limit(row.stored_bits_per_value)
        if not math.isclose(row.limit, limit, rel_tol=1e-3):
            yield f"row {i} has the limit {row.limit:.4g}; it is {limit:.4g}"


def _limit(bits: float) -> float:
    return math.exp2(-2 * min(bits, 500.0))


@check("ROW_CONTRADICTS", KV_QUANT)
def codecs_are_scored_on_the_same_values(index: ReportIndex) -> Iterator[str]:
    """All arms are scored on the values and positions of the raw cache."""
    for prompt in index.prompts:
        rows = [row for arm in index.counted.by_arm for row in index.rows_of(arm, prompt)]
        squares = [row.sum_squares for row in rows]
        counts = {(row.n_values, row.n_positions) for row in rows}
        if len(counts) > 1 or (rows and max(squares) > min(squares) * (1 + _SUMS)):
            yield f"the arms were not scored on the same values and positions of {prompt}"
        for arm in index.arms_of("baseline"):
            for row in index.rows_of(arm.name, prompt) if arm.cache == RAW else ():
                shared = sum(
                    math.prod(a.shape) * layer.count for layer in row.memory.layers for a in layer.arrays
                )
                if shared != row.n_values:
                    yield f"the arrays of the raw cache hold {shared} values of {prompt}; n_values is {row.n_values}"
