"""Laws of quality: error, divergence, equal tokens and perplexity bound one another; a codec's error has a floor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from bridge.evidence.bundled import bundled_target
from bridge.evidence.claims import stored_bits
from bridge.evidence.floors import floor_of
from bridge.evidence.laws.law import CODEC, QUANT, law
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rows import CodecRow
from bridge.evidence.stats import median

# Of a family of codecs: how many times 2^-2R its error may be, at the R bits that it stores.
# Lattices and Voronoi codes rotate and scale each vector, so that it is nearly Gaussian, where E8 allows 1.22 at best
# (its second moment, Conway and Sloane 1982), and the scales cost 0.156 bits a value at least: 1.22 * 4^0.156 is 1.5.
# Affine codes have no floor on values that lie close together.
FAMILIES = {
    "e8v": (1.4, 6.0),
    "voronoi": (1.4, 6.0),
    "e8": (1.2, 60.0),
    "d4": (1.2, 60.0),
    "affine": (0.2, 400.0),
}
# On Gaussian vectors an affine code does worse than the best scalar code of as many levels (Max 1960).
BEST_SCALAR = {2: 0.1175, 3: 0.03454, 4: 0.009497, 5: 0.002499, 6: 0.0006417, 8: 0.0000408}
# The same on drawn vectors: measured 1.6 to 1.9 (2.7 on outliers), 2.4 to 5.1, 2.1 to 5.1, and up to 16 unrotated.
DRAWN = {"voronoi": (1.3, 3.6), "e8": (1.7, 7.5), "d4": (1.7, 7.5), "affine": (1.6, 9.0)}
UNROTATED = 40.0
# Vectors that are drawn, not captured.
SEEDED = ("gaussian", "t4", "outliers")
# Rounding to bfloat16: at most 2^-9 of a value, a third of its square in the mean, and more than a hundredth of that.
HALF = (2e-7, 6e-6)
# Standard deviations of a sum that chance is allowed.
CHANCE = 8.0
# The same of -ln p of a text: of one that the model would not have written, the least likely tokens move most.
SURPRISED = 24.0
# By how much the divergence that an error of a given size makes may differ from codec to codec.
ALIKE = 6.0
# A model that computes in half precision rounds otherwise wherever a cache differs at all, so that its predictions move
# by so much, however small the error is. Measured on the bundled models: up to 0.0009 nats in bfloat16, and less than
# 0.00002 in float16. Divergences that are this many times as large come of the error.
FLOOR, FLOOR_OF_OTHERS, ABOVE = {"bfloat16": 2e-3, "float16": 2e-4}, 2.0, 10.0
# Of other models, only errors of similar size are known to make similar divergences.
SIMILAR = 4.0
# Codes that rotate vectors first err in all directions alike: measured within 1.3 times of one another on four models.
ROTATED = ("e8v", "e8", "d4")
ALIKE_ROTATED, FEWEST = 1.5, 3
# Few positions leave more to chance: of 672 divergences on 42 texts of 44 to 127 tokens, the logarithms stray from the
# text's median by up to 3.8 over the root of the positions.
OF_FEW_POSITIONS = 4.5
# Tokens change with the root of the divergence: measured between 0.3 and 0.8 times that.
CHANGED = (0.05, 4.0)
# Of the bundled models: measured between 0.39 and 0.78 where more than ten changed.
OF_BUNDLED = (0.3, 1.0)


@dataclass(frozen=True)
class Sums:
    """An arm's sums over all prompts, and those of the raw cache on the same ones."""

    arm: str
    cache: str
    role: str
    positions: int
    error: float
    kl: float
    changed: int
    nll: float
    raw_nll: float
    bits: float
    mixed: bool


def _sums(index: ReportIndex) -> Iterator[Sums]:
    raw = {
        row.prompt: row for arm in index.arms_of("baseline") if arm.cache == "raw"
        for prompt in index.measured.get(arm.name, {}) for row in index.quants(arm.name, prompt)
    }  # fmt: skip
    for arm in index.all_arms:
        rows = [row for prompt in index.measured.get(arm.name, {}) for row in index.quants(arm.name, prompt)]
        rows = [row for row in rows if row.prompt in raw]
        squares = sum(row.sum_squares for row in rows)
        if rows and squares > 0:
            yield Sums(
                arm.name, arm.cache, arm.role, sum(row.n_positions for row in rows),
                sum(row.sum_squared_error for row in rows) / squares, sum(row.sum_kl for row in rows),
                sum(row.n_positions - row.same_top for row in rows), sum(row.sum_nll for row in rows),
                sum(raw[row.prompt].sum_nll for row in rows),
                stored_bits(index, arm.name, [row.prompt for row in rows]), bool(arm.options.get("raw_layers")),
            )  # fmt: skip


@law(
    "QUALITY_IMPOSSIBLE", QUANT, "rows.sum_nll rows.n_positions",
    "no model predicts each token of a text with certainty",
)  # fmt: skip
def texts_are_uncertain(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        if row.sum_nll <= 0:
            yield f"row {i}: {row.arm} predicts all {row.n_positions} tokens of {row.prompt} with certainty"


@law(
    "QUALITY_IMPOSSIBLE", QUANT, "rows.sum_nll rows.sum_kl rows.n_positions",
    "the mean of -ln p moves by no more than the divergence and chance allow",
)  # fmt: skip
def perplexity_within_divergence(index: ReportIndex) -> Iterator[str]:
    for one in _sums(index):
        moved, room = one.nll - one.raw_nll, 3 * one.kl + SURPRISED * math.sqrt(2 * max(one.kl, 1e-9)) + 1e-3
        if one.role != "poison" and abs(moved) > room:
            yield f"{one.arm}: -ln p moved by {moved:.4g} in all, and a divergence of {one.kl:.4g} allows {room:.4g}"


@law(
    "QUALITY_IMPOSSIBLE", QUANT, "rows.same_top rows.sum_kl rows.n_positions",
    "the number of changed top tokens fits the divergence",
)  # fmt: skip
def changes_within_divergence(index: ReportIndex) -> Iterator[str]:
    low, high = CHANGED
    roots = [(one, math.sqrt(one.kl * one.positions)) for one in _sums(index)]
    # A model whose likeliest tokens are far ahead of all others keeps them even with the poisoned cache.
    firm = any(one.role == "poison" and one.changed < low * root - 3 for one, root in roots)
    for one, root in roots:
        least = 0.0 if firm else low * root - 3
        if one.role != "poison" and not least <= one.changed <= high * root + 3:
            shown = f"{one.changed} of {one.positions} likeliest tokens changed"
            yield f"{one.arm}: {shown} at a divergence of {one.kl:.4g}"


@law(
    "QUALITY_IMPOSSIBLE", QUANT, "rows.same_top rows.sum_kl rows.n_positions models.weights",
    "on a bundled model, divergence changes about half of the root of it of the top tokens",
)  # fmt: skip
def changes_on_bundled_models(index: ReportIndex) -> Iterator[str]:
    if not bundled_target(index):
        return
    coded = [one for one in _sums(index) if one.role in ("candidate", "reference") and one.kl > 0]
    roots = {one.arm: math.sqrt(one.kl * one.positions) for one in coded}
    told = [(one.arm, one.changed, roots[one.arm]) for one in coded]
    told.append(("all caches together", sum(one.changed for one in coded), sum(roots.values())))
    for name, changed, root in told:
        low, high = (
            share * root + sign * 3 * math.sqrt(root) for share, sign in zip(OF_BUNDLED, (-1, 1), strict=True)
        )
        if not low <= changed <= high:
            yield f"{name}: {changed} likeliest tokens changed; the divergence changes {max(0, low):.0f} to {high:.0f}"


def floor_of_divergence(index: ReportIndex) -> float:
    """Return the divergence a position that rounding alone may cause in a model of this type."""
    found = FLOOR.get(getattr(index.target, "dtype", ""), 0.0)
    return found if bundled_target(index) else found * FLOOR_OF_OTHERS


def odd_slopes(index: ReportIndex, told: dict[str, tuple[float, float]], alike: float) -> Iterator[str]:
    """Yield which divergence does not follow from its error as those of other codes do.

    Args:
        index: the report.
        told: of each code its error, and its divergence a position.
        alike: how many times the slopes may differ.
    """
    floor, own = floor_of_divergence(index), bool(bundled_target(index))
    for name, (error, kl) in told.items():
        beside = [
            (size, other)
            for size, other in told.values()
            if own or error / SIMILAR <= size <= error * SIMILAR
        ]
        least = median(max(0.0, other - floor) / size for size, other in beside) / alike * error
        most = median(other / size for size, other in beside) * alike * error + floor
        if not least <= kl <= most:
            middle = median(other / size for size, other in beside)
            yield f"{name}: its divergence is {kl / error:.3g} times its error, and others' is {middle:.3g} times"


@law(
    "QUALITY_IMPOSSIBLE", QUANT, "rows.sum_kl rows.sum_squared_error rows.sum_squares models.dtype",
    "errors of similar size cause divergences of similar size, whatever the codec, but for what rounding causes",
)  # fmt: skip
def divergence_follows_error(index: ReportIndex) -> Iterator[str]:
    erring = [one for one in _sums(index) if one.error > 0 and one.kl > 0 and one.role != "poison"]
    turned = [one for one in erring if one.cache.partition("@")[0] in ROTATED and not one.mixed]
    own = bool(bundled_target(index))
    few = min((one.positions for one in turned), default=1)
    chance = math.exp(OF_FEW_POSITIONS / math.sqrt(few))
    beside = turned if own and len(turned) >= FEWEST else []
    for some, alike in ((erring, ALIKE), (beside, max(ALIKE_ROTATED, chance))):
        yield from odd_slopes(index, {one.arm: (one.error, one.kl / one.positions) for one in some}, alike)


def _family(cache: str) -> tuple[float, float] | None:
    return FAMILIES.get(cache.partition("@")[0].partition(" ")[0].lower())


@law(
    "QUALITY_IMPOSSIBLE", QUANT, "rows.sum_squared_error rows.memory arms.cache",
    "a codec's error lies between its own floor and ceiling at the bits that it stores",
)  # fmt: skip
def error_of_the_codec(index: ReportIndex) -> Iterator[str]:
    for one in _sums(index):
        bounds = _family(one.cache)
        if bounds is None or one.error == 0 or floor_of(one.cache) is None or one.mixed:
            continue
        if one.cache.startswith("affine") and not bundled_target(index):
            bounds = (
                0.0,
                bounds[1],
            )  # channels that are far larger than others take most of the sum of squares
        times = one.error * math.exp2(2 * one.bits)
        if not bounds[0] <= times <= bounds[1]:
            low, high = (bound * math.exp2(-2 * one.bits) for bound in bounds)
            yield f"{one.arm} has the error {one.error:.3g} at {one.bits:.4g} bits; {low:.3g} to {high:.3g} is possible"


@law(
    "QUALITY_IMPOSSIBLE", CODEC, "rows.rel_mse rows.bits rows.distribution rows.codec",
    "a code's error lies between its own floor and ceiling",
)  # fmt: skip
def error_of_the_code(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        low, high = _bounds(row)
        if not low <= row.rel_mse <= high:
            yield f"row {i}: {row.codec} has the error {row.rel_mse:.3g}; {low:.3g} to {high:.3g} is possible"


def _bounds(row: CodecRow) -> tuple[float, float]:
    """Return the least and the greatest error of a code, sampling included."""
    chance = CHANCE * row.rel_mse_stderr
    if row.codec == "raw":
        return HALF
    family = _family(row.codec)
    if family is None:
        return 0.0, math.inf
    if row.distribution in SEEDED:
        family = DRAWN[row.codec.partition(" ")[0].lower()]
        if row.codec == "affine" and row.distribution != "gaussian" and not row.rotated:
            family = family[0], UNROTATED
    low, high = (bound * math.exp2(-2 * row.stored_bits_per_value) for bound in family)
    if row.codec == "affine" and row.distribution not in SEEDED:
        low = 0.0
    if row.codec == "affine" and row.distribution == "gaussian":
        # Groups are scaled by themselves, so a little less than a code for the whole source can do.
        low = max(low, 0.7 * BEST_SCALAR.get(row.bits or 0, 0.0))
    return max(0.0, low - chance), high


@law(
    "QUALITY_IMPOSSIBLE", CODEC, "rows.rel_mse rows.bits rows.codec rows.group",
    "with more bits, the same code has a smaller error",
)  # fmt: skip
def more_bits_err_less(index: ReportIndex) -> Iterator[str]:
    groups: dict[tuple[object, ...], list[CodecRow]] = {}
    for row in index.rows:
        name = row.codec.partition(" ")[0]
        key = (name, row.group, row.rotated, row.dim, row.distribution)
        groups.setdefault(key, []).append(row)
    for rows in groups.values():
        rows.sort(key=lambda row: row.stored_bits_per_value)
        for one, other in pairwise(rows):
            if other.rel_mse >= one.rel_mse and other.stored_bits_per_value > one.stored_bits_per_value:
                more, less = other.stored_bits_per_value, one.stored_bits_per_value
                yield f"{other.codec} at {more:g} bits has no smaller error than at {less:g}"


@law(
    "QUALITY_IMPOSSIBLE", CODEC, "rows.rel_mse_stderr rows.rel_mse rows.n_vectors",
    "errors vary from vector to vector as they do for random vectors",
)  # fmt: skip
def errors_spread(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        spread = row.rel_mse_stderr * math.sqrt(max(row.n_vectors, 1))
        if row.rel_mse > 0 and not 0.01 * row.rel_mse <= spread <= 30 * row.rel_mse:
            yield f"row {i}: {row.n_vectors} errors of mean {row.rel_mse:.3g} cannot spread by {spread:.3g}"


@law(
    "QUALITY_IMPOSSIBLE", CODEC, "rows.stored_bits_per_value rows.codec rows.bits rows.group rows.dim",
    "a code stores no more bits than its format takes",
)  # fmt: skip
def bits_of_the_code(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        dim = row.dim or index.report.config.get("dim")
        name = {
            "affine": f"affine@{row.bits}g{row.group}", "voronoi": f"e8v@{row.bits}.25",
        }.get(row.codec, row.codec.lower().replace(" q", "@q"))  # fmt: skip
        most = (
            16.0 if row.codec == "raw" else floor_of(name, dim) if isinstance(dim, int) and dim > 0 else None
        )
        if most is None and row.bits and row.codec in ("affine", "voronoi") and isinstance(dim, int):
            yield f"row {i} is {row.codec} of {row.bits} bits and groups of {row.group}, which is no format"
        elif most is not None and row.stored_bits_per_value > most + 1e-6:
            yield f"row {i} counts {row.stored_bits_per_value:g} bits; {row.codec} stores {most:g}"
