"""Laws that compare codecs: within a family, the errors at two rates differ by a known factor, on every text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import combinations, pairwise

from bridge.evidence.bundled import bundled_target
from bridge.evidence.laws.law import CODEC, QUANT, law
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rows import CodecRow

# A uniform code of b bits errs by the square of its step, range / (2^b - 1): measured within 3 % of that.
# A Voronoi code errs by 4^-b: measured within 3 %. Lattices by q^-2 where no point is cut off.
RATE = 1.35
# D4 errs more than E8 at the same range: their second moments are 0.07660 and 0.07168 (Conway and Sloane 1982), and
# their cells are of unlike size. Measured: 1.49 to 1.52 times.
D4_OVER_E8 = (1.2, 1.9)
# Rounding to half precision alone causes errors of this size. Affine codes keep scales in the model's type: measured
# 2.4e-5 more in bfloat16, at whatever bits, and less than 3e-6 more in float16.
SMALL, SMALL_BFLOAT16 = 3e-5, 3e-4
# Channels that are far larger than others leave few levels to the rest, so that the error of an affine code is not
# that of its step. The bundled models have none such.
RATE_OF_OTHERS = 30.0
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
# By how much another effort of the encoder may change an error.
ANOTHER_EFFORT = 0.08
# Another seed differs by 3 % beyond the standard error. Another effort of the encoder differs by 7 %, and so do
# vectors that a rotation makes nearly Gaussian.
KNOWN, EFFORT, ROTATED, CHANCE = 0.05, 0.2, 0.1, 6.0
# A rotation makes the bundled models' keys and values nearly Gaussian. Measured on four models and five texts: within
# 5 % of the known error, but for lattices of small range, and 0.9 to 1.2 times that of affine codes.
BUNDLED, BUNDLED_AFFINE, BUNDLED_COARSE, FINE = 0.07, 1.35, 0.12, 7
# On other vectors that are drawn: measured at 64 to 512 values, eight seeds in all, with room at both ends.
BESIDE: dict[str, dict[str, tuple[float, float]]] = {
    "t4": {"rotated": (0.92, 1.06), "affine": (1.3, 2.3)},
    "outliers": {"rotated": (0.45, 0.95), "voronoi": (0.8, 1.5), "affine": (1.3, 6.0), "coarse": (0.7, 1.8)},
}
COARSE, SIGMAS = 2, 4.0
# One vector's error varies by a share of the mean: measured 9 to 16 % for Voronoi codes, 22 to 32 % for lattices, and
# 12 to 26 % for affine codes, on vectors of 64 to 256 values.
SPREAD = {"voronoi": (0.05, 0.6), "e8": (0.12, 0.6), "d4": (0.12, 0.6), "affine": (0.03, 0.6)}
# The larger a vector, the more blocks it has, so that its error under a Voronoi code varies by the less: measured 0.8
# to 1.6 over the root of its size for 64 to 128 values, and 10 % of the mean for 256 and 512. Of the usual effort.
SPREAD_OF_BLOCKS, LARGE = 2.2, 128
# Outliers stand in a few channels that the seed draws: errors on them differ by a third from seed to seed.
DRAWN = ("gaussian", "t4")

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


def small_error(index: ReportIndex) -> float:
    """Return up to which relative error the rounding of a report's model may be what causes it."""
    return SMALL_BFLOAT16 if getattr(index.target, "dtype", "") == "bfloat16" else SMALL


def _errors(index: ReportIndex) -> dict[str, float]:
    """Return the relative error of each cache that codes all layers and errs more than half precision does."""
    found = {}
    for arm in index.arms_of("candidate", "reference"):
        rows = [row for prompt in index.measured.get(arm.name, {}) for row in index.quants(arm.name, prompt)]
        squares = sum(row.sum_squares for row in rows)
        error = sum(row.sum_squared_error for row in rows) / squares if squares > 0 else 0.0
        if error > small_error(index) and not arm.options.get("raw_layers"):
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
            rate = RATE_OF_OTHERS if family.startswith("affine") and not bundled_target(index) else RATE
            low, high = step / beside / rate, step / beside * rate
        elif {family, another} == {"e8", "d4"} and step == beside:
            low, high = (1 / D4_OVER_E8[1], 1 / D4_OVER_E8[0]) if family == "e8" else D4_OVER_E8
        if not low <= times <= high:
            yield f"{one} has {times:.3g} times the error of {other}; {low:.3g} to {high:.3g} is possible"


@law(
    "QUALITY_IMPOSSIBLE", QUANT, "rows.sum_squared_error rows.sum_squares arms.cache models.weights",
    "on a bundled model, a cache has the known error of its code",
)  # fmt: skip
def errors_on_bundled_models(index: ReportIndex) -> Iterator[str]:
    shape = bundled_target(index).get("cache")
    for cache, error in _errors(index).items() if shape and shape["dim"] in DIMS else ():
        known = (
            _known_of_cache(cache, DIMS.index(shape["dim"]), whole=not any(shape["windows"]))
            if shape
            else None
        )
        if known is not None and not known[0] <= error <= known[1]:
            yield f"{cache} has the error {error:.3g}; {known[0]:.3g} to {known[1]:.3g} is known of this model"


def _known_of_cache(cache: str, at: int, *, whole: bool) -> tuple[float, float] | None:
    """Return between what a cache's error lies on a bundled model; ``whole``: every layer is coded by every code."""
    if found := _VORONOI.fullmatch(cache):
        error = VORONOI[int(found[1])][at]
    elif (found := _LATTICE.fullmatch(cache)) and int(found[2]) > FINEST:
        error = LATTICE[found[1]][at] / int(found[2]) ** 2
    elif (found := _AFFINE.fullmatch(cache)) and whole:
        error = AFFINE.get((int(found[1]), int(found[2])), 0.0)
        return (error * (1 - BUNDLED_COARSE), error * BUNDLED_AFFINE) if error else None
    else:
        return None
    coarse = found.re is _LATTICE and int(found[2]) < FINE
    room = BUNDLED_COARSE if coarse else BUNDLED
    if found.re is _VORONOI and found[2]:
        room += ANOTHER_EFFORT
    return error * (1 - room), error * (1 + room)


def _is_fine(cache: str) -> bool:
    """Return whether a code has enough levels for its error to be that of its step: coarse ones cut values off."""
    affine, voronoi, lattice = _AFFINE.fullmatch(cache), _VORONOI.fullmatch(cache), _LATTICE.fullmatch(cache)
    if affine or voronoi:
        return int((affine or voronoi)[1]) >= 4  # type: ignore[index]  # noqa: PLR2004
    return bool(lattice) and int(lattice[2]) >= 7  # type: ignore[index]  # noqa: PLR2004


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
        if abs(row.rel_mse - wanted) > room * wanted + CHANCE * min(
            row.rel_mse_stderr, _most_stderr(row, wanted, exact=exact)
        ):
            said = f"row {i}: {row.codec} at {row.bits} has the error {row.rel_mse:.3g} on {row.distribution}"
            yield f"{said}; the known error is {wanted:.3g}"


@law(
    "QUALITY_IMPOSSIBLE", CODEC, "rows.rel_mse rows.distribution rows.codec rows.rotated",
    "on heavy tails and outliers, a code errs by a known factor of what it does on Gaussian vectors",
)  # fmt: skip
def errors_beside_gaussian(index: ReportIndex) -> Iterator[str]:
    def name(row: CodecRow) -> tuple[object, ...]:
        return row.codec, row.bits, row.group, row.rotated, row.dim

    plain = {name(row): row for row in index.rows if row.distribution == "gaussian" and row.rel_mse > 0}
    for i, row in enumerate(index.rows):
        beside, bounds = plain.get(name(row)), _beside_gaussian(row)
        if beside is None or bounds is None or row.rel_mse <= 0:
            continue
        times = row.rel_mse / beside.rel_mse
        chance = SIGMAS * math.hypot(row.rel_mse_stderr / row.rel_mse, beside.rel_mse_stderr / beside.rel_mse)
        if not bounds[0] * (1 - chance) <= times <= bounds[1] * (1 + chance):
            shown = f"row {i}: {row.codec} at {row.bits} has {times:.3g} times its Gaussian error on {row.distribution}"
            yield f"{shown}; {bounds[0]:g} to {bounds[1]:g} times is known"


def _beside_gaussian(row: CodecRow) -> tuple[float, float] | None:
    """Return between what a code's error on other vectors lies, as a multiple of that on Gaussian ones."""
    family, _, q_range = row.codec.lower().partition(" q")
    if family not in SPREAD or row.distribution not in BESIDE:
        return None
    if family == "affine" and not row.rotated:
        coarse = row.distribution == "outliers" and row.bits == COARSE
        return BESIDE[row.distribution]["coarse" if coarse else "affine"]
    if family in LATTICE and not (q_range.isdigit() and int(q_range) >= FINEST):
        return None
    bounds = BESIDE[row.distribution]
    return bounds.get("voronoi", bounds["rotated"]) if family == "voronoi" else bounds["rotated"]


def _most_stderr(row: CodecRow, error: float, *, exact: bool) -> float:
    """Return the largest standard error that so many drawn vectors of that error can have; no limit if unknown."""
    if not exact or row.codec != "voronoi" or not row.dim or row.distribution not in DRAWN:
        return math.inf
    return SPREAD_OF_BLOCKS * error / math.sqrt(min(row.dim, LARGE) * max(row.n_vectors, 1))


def _between(errors: tuple[float, ...] | None, dim: int) -> float | None:
    """Return the error at a size of vectors, interpolated between the nearest known sizes; None outside of these."""
    for (one, low), (other, high) in pairwise(zip(DIMS, errors or (), strict=False)):
        if one <= dim <= other:
            return low + (high - low) * math.log(dim / one) / math.log(other / one)
    return None


def _known(row: CodecRow, dim: object) -> float | None:
    """Return a code's error on drawn vectors as 512 of each size gave it; None if that is not known."""
    at = DIMS.index(dim) if dim in DIMS else None
    if row.codec == "voronoi" and isinstance(dim, int) and row.distribution in DRAWN:
        return _between(VORONOI.get(row.bits or 0), dim)
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
    exact = index.report.config.get("effort") in (None, "normal")
    for i, row in enumerate(index.rows):
        spread = SPREAD.get(row.codec.partition(" ")[0].lower())
        if spread is None or row.distribution != "gaussian" or not 0 < row.rel_mse_stderr <= row.rel_mse:
            continue  # SPREAD_IMPOSSIBLE says so of the rest
        share = row.rel_mse_stderr * math.sqrt(row.n_vectors) / row.rel_mse
        most = min(
            spread[1], _most_stderr(row, row.rel_mse, exact=exact) * math.sqrt(row.n_vectors) / row.rel_mse
        )
        if not spread[0] <= share <= most:
            yield f"row {i}: errors of {row.n_vectors} vectors spread by {share:.2g} of their mean"
