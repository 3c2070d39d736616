"""Laws of codecs beside one another: the same family at another rate errs by a known factor, on every text alike."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

from bridge.evidence.kinds import CodecRow, QuantRow
from bridge.evidence.laws.law import CODEC, QUANT, law
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.stats import median

# A uniform code of b bits errs by the square of its step, range / (2^b - 1): measured within 3 % of that.
# A Voronoi code errs by 4^-b: measured within 3 %. Lattices by q^-2 where no point is cut off.
RATE = 1.35
# D4 errs more than E8 at the same range: their second moments are 0.07660 and 0.07168 (Conway and Sloane 1982), and
# their cells are of unlike size. Measured: 1.49 to 1.52 times.
D4_OVER_E8 = (1.2, 1.9)
# Of one codec on texts of one model: measured within 2 % of one another, relative to what other codecs do on the text.
TEXTS = 1.4
# Rounding to half precision alone causes errors of this size.
SMALL = 3e-5
# On Gaussian vectors of 64, 128, 256 and 512 values: 512 vectors each. Affine codes depend on the group alone, and a
# lattice's error falls with the square of its range.
# At a range of 1 values are cut off.
FINEST = 2
DIMS = (64, 128, 256, 512)
AFFINE = {
    (2, 32): 0.1310, (3, 32): 0.0292, (4, 32): 0.00655, (5, 32): 0.001540, (6, 32): 0.0003723, (8, 32): 2.298e-05,
    (2, 64): 0.1552, (3, 64): 0.0360, (4, 64): 0.00828, (5, 64): 0.001949, (6, 64): 0.0004702, (8, 64): 2.92e-05,
    (2, 128): 0.1795, (3, 128): 0.0430, (4, 128): 0.01002, (5, 128): 0.002369, (6, 128): 0.000573, (8, 128): 3.55e-05,
}  # fmt: skip
LATTICE = {"d4": (0.734, 0.893, 1.025, 1.163), "e8": (0.487, 0.589, 0.678, 0.770)}
VORONOI = {
    2: (0.0790, 0.0826, 0.0836, 0.0865), 3: (0.01806, 0.01951, 0.02027, 0.02128),
    4: (0.004352, 0.004822, 0.005098, 0.005443), 5: (0.001074, 0.001187, 0.001255, 0.001346),
    6: (0.0002692, 0.0002962, 0.0003142, 0.0003352),
}  # fmt: skip
# Another seed differs by 3 % beyond the standard error. Another effort of the encoder differs by 7 %, and so do
# vectors that a rotation makes nearly Gaussian.
KNOWN, EFFORT, ROTATED, CHANCE = 0.05, 0.2, 0.1, 6.0
# One vector's error varies by 8 to 29 % of the mean.
SPREAD = (0.03, 0.6)
DRAWN = ("gaussian", "t4", "outliers")

_AFFINE = re.compile(r"affine@(\d)g(\d+)")
_VORONOI = re.compile(r"e8v@(\d)\.25(:\w+)?")
_LATTICE = re.compile(r"(e8|d4)@q(\d+)")


def steps(cache: str) -> tuple[str, float] | None:
    """Return a cache's family and its error but for a factor that all of the family share; None if unknown."""
    if found := _AFFINE.fullmatch(cache):
        return f"affine, group {found[2]}", (2.0 ** int(found[1]) - 1) ** -2
    if found := _VORONOI.fullmatch(cache):
        return f"e8v{found[2] or ''}", 4.0 ** -int(found[1])
    if found := _LATTICE.fullmatch(cache):
        return found[1], float(int(found[2]) ** -2)
    return None


def _errors(index: ReportIndex) -> dict[str, float]:
    """Return the relative error of each cache that codes all layers and errs more than half precision does."""
    found = {}
    for arm in index.arms_of("candidate", "reference"):
        rows = [row for prompt in index.measured.get(arm.name, {}) for row in index.quants(arm.name, prompt)]
        squares = sum(row.sum_squares for row in rows)
        error = sum(row.sum_squared_error for row in rows) / squares if squares > 0 else 0.0
        if error > SMALL and not arm.options.get("raw_layers") and arm.options.get("boundary", 0) == 0:
            found[arm.cache] = error
    return found


@law(
    "QUALITY_IMPOSSIBLE", QUANT, "rows.sum_squared_error rows.sum_squares arms.cache",
    "the errors of one family of codes are proportional to the squares of their steps",
)  # fmt: skip
def errors_of_a_family(index: ReportIndex) -> Iterator[str]:
    errors = {cache: error for cache, error in _errors(index).items() if steps(cache)}
    for one, other in combinations(sorted(errors), 2):
        (family, step), (another, beside) = steps(one) or ("", 1.0), steps(other) or ("", 1.0)
        times = errors[one] / errors[other]
        low, high = 0.0, math.inf
        if family == another and _is_fine(one) and _is_fine(other):
            low, high = step / beside / RATE, step / beside * RATE
        elif {family, another} == {"e8", "d4"} and step == beside:
            low, high = (1 / D4_OVER_E8[1], 1 / D4_OVER_E8[0]) if family == "e8" else D4_OVER_E8
        if not low <= times <= high:
            yield f"{one} has {times:.3g} times the error of {other}; {low:.3g} to {high:.3g} is possible"


def _is_fine(cache: str) -> bool:
    """Say whether a code has enough levels for its error to be that of its step: coarse ones cut values off."""
    affine, voronoi, lattice = _AFFINE.fullmatch(cache), _VORONOI.fullmatch(cache), _LATTICE.fullmatch(cache)
    if affine or voronoi:
        return int((affine or voronoi)[1]) >= 4  # type: ignore[index]  # noqa: PLR2004
    return bool(lattice) and int(lattice[2]) >= 7  # type: ignore[index]  # noqa: PLR2004


@law(
    "QUALITY_IMPOSSIBLE", QUANT, "rows.sum_squared_error rows.sum_squares rows.prompt",
    "relative to other caches, a cache has about the same error on every text",
)  # fmt: skip
def errors_of_a_text(index: ReportIndex) -> Iterator[str]:
    logs: dict[str, dict[str, float]] = defaultdict(dict)
    for row in index.rows:
        if (
            isinstance(row, QuantRow)
            and row.sum_squares > 0
            and row.sum_squared_error > SMALL * row.sum_squares
        ):
            logs[row.arm][row.prompt] = math.log(row.sum_squared_error / row.sum_squares)
    kept = {arm: some for arm, some in logs.items() if len(some) > 1 and arm in index.arms
            and index.arms[arm].role in ("candidate", "reference")}  # fmt: skip
    if len(kept) < 2:  # noqa: PLR2004
        return
    level = {arm: median(some.values()) for arm, some in kept.items()}
    prompts = {prompt for some in kept.values() for prompt in some}
    text = {p: median(some[p] - level[arm] for arm, some in kept.items() if p in some) for p in prompts}
    for arm, some in kept.items():
        for prompt, value in some.items():
            apart = abs(value - level[arm] - text[prompt])
            if apart > math.log(TEXTS):
                yield f"{arm} has {math.exp(apart):.2f} times more or less error on {prompt} than on other texts"


@law(
    "QUALITY_IMPOSSIBLE", CODEC, "rows.rel_mse rows.rel_mse_stderr rows.bits rows.codec rows.group rows.dim",
    "on Gaussian vectors a code has its known error, within chance",
)  # fmt: skip
def known_errors(index: ReportIndex) -> Iterator[str]:
    config = index.report.config
    exact = config.get("effort") in (None, "normal")
    for i, row in enumerate(index.rows):
        wanted = _known(row, row.dim or config.get("dim"))
        if wanted is None:
            continue
        room = (KNOWN if exact else EFFORT) + (0.0 if row.distribution == "gaussian" else ROTATED)
        if abs(row.rel_mse - wanted) > room * wanted + CHANCE * row.rel_mse_stderr:
            said = f"row {i}: {row.codec} at {row.bits} has the error {row.rel_mse:.3g} on {row.distribution}"
            yield f"{said}; the known error is {wanted:.3g}"


def _known(row: CodecRow, dim: object) -> float | None:
    """Return a code's error on drawn vectors as 512 of each size gave it; None where that is not known."""
    at = DIMS.index(dim) if dim in DIMS else None
    if row.codec == "voronoi" and at is not None and row.distribution in DRAWN:
        return VORONOI.get(row.bits or 0, (None,) * len(DIMS))[at]
    if row.distribution != "gaussian":
        return None
    if row.codec == "affine":
        return AFFINE.get((row.bits or 0, row.group or 0))
    lattice, _, q_range = row.codec.lower().partition(" q")
    if lattice in LATTICE and q_range.isdigit() and int(q_range) >= FINEST and at is not None:
        return LATTICE[lattice][at] / int(q_range) ** 2
    return None


@law(
    "QUALITY_IMPOSSIBLE", CODEC, "rows.rel_mse_stderr rows.rel_mse rows.n_vectors",
    "the standard error fits the number of vectors",
)  # fmt: skip
def standard_errors_of_so_many(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        named = row.codec.partition(" ")[0].lower() in ("voronoi", "e8", "d4", "affine")
        if not named or row.distribution != "gaussian" or not 0 < row.rel_mse_stderr <= row.rel_mse:
            continue  # SPREAD_IMPOSSIBLE says so of the rest
        share = row.rel_mse_stderr * math.sqrt(row.n_vectors) / row.rel_mse
        if not SPREAD[0] <= share <= SPREAD[1]:
            yield f"row {i}: errors of {row.n_vectors} vectors spread by {share:.2g} of their mean"
