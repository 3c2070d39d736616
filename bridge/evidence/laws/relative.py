"""Laws that compare what one run says of the same vectors, texts or prompts: there, chance cancels out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from bridge.evidence.bundled import bundled_target
from bridge.evidence.laws.codecs import AFFINE, DIMS, DRAWN, LATTICE, VORONOI, small_error
from bridge.evidence.laws.law import CODEC, PARITY, QUANT, SPEC, law
from bridge.evidence.laws.pace import REPEATED, paces, round_of
from bridge.evidence.laws.quality import ABOVE, ROTATED, floor_of_divergence, odd_slopes
from bridge.evidence.laws.rounds import OURS
from bridge.evidence.names import QUOTIENTS
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rows import CodecRow, QuantRow
from bridge.evidence.stats import median

# All codes of a family code the same vectors, so their errors rise and fall together. Measured on 30 seeds and sizes:
# within 6 % of the family's median on 64 vectors, and within 2 % on 512.
SAME_VECTORS, CHANCE, FAMILY = 0.025, 0.5, 3
# Codes of so few bits err by other multiples on vectors that are not Gaussian.
FEWEST_BITS = {"gaussian": 2, "t4": 4, "outliers": 5}
VORONOI_BITS = 3

# Relative to the other caches, the error of one on a text is the same on every text: measured within 0.5 % on two
# bundled models. With other models, caches that do not rotate depend on the text, and so do comparisons with them.
SAME_TEXT, OTHER_TEXT = 1.1, 1.4
# Likewise, a divergence relative to its error is about the same on every text; chance shrinks with the root of its
# tokens. Measured with 18 caches on 24 texts and two models: the logarithms stray by 0.9 to 1.8 over that root in 34 of
# 38 groups of texts, by 3.4 at most. The furthest of caches that rotate were 1.67 times at 66 tokens, 1.35 at 227, of
# 2.1 and 1.7; of others, which depend on the text, 1.83 at 78 and 1.90 at 215, of 2.6 and 2.2.
TURNED, NOT_TURNED, OF_A_TEXT, POSITIONS = 0.25, 0.5, 4.0, 50
# Of the bundled models: measured 0.89 to 1.03 times the error, whatever the code, on texts of 800 tokens together.
BUNDLED, ENOUGH = 1.7, 100

# A round of a draft model takes the same multiple of a token on every prompt. Measured: within 2 % on an idle machine,
# and 1.6 times on a busy one. Much longer prompts are left out.
ROUND, ALIKE, OTHERS = 1.7, 2.0, 2

# Numbers of so few digits cannot give logits that are closer: a unit in the last place of 1 is 2^-7 or 2^-10.
ROUNDING = {"bfloat16": 1e-3, "float16": 1e-4}


def _known(row: CodecRow) -> tuple[tuple[object, ...], float] | None:
    """Return a code's family, and its known error on Gaussian vectors; None if either is unknown."""
    at = DIMS.index(row.dim) if row.dim in DIMS else None
    name, _, q_range = row.codec.lower().partition(" q")
    least = FEWEST_BITS.get(row.distribution)
    if least is None or at is None or row.rel_mse <= 0:
        return None
    error = 0.0
    if name == "voronoi" and (row.bits or 0) >= (2 if row.distribution in DRAWN else VORONOI_BITS):
        error = VORONOI.get(row.bits or 0, (0.0,) * len(DIMS))[at]
    elif name == "affine" and (row.bits or 0) >= (2 if row.rotated and row.distribution in DRAWN else least):
        error = AFFINE.get((row.bits or 0, row.group or 0), 0.0)
    elif name in LATTICE and q_range.isdigit() and int(q_range) >= 4:  # noqa: PLR2004 - coarser ones cut values off
        error = LATTICE[name][at] / int(q_range) ** 2
    return ((name, row.group or 0, bool(row.rotated), row.dim, row.distribution), error) if error else None


@law(
    "QUALITY_IMPOSSIBLE", CODEC, "rows.rel_mse rows.bits rows.codec rows.distribution rows.n_vectors",
    "on the same vectors, all codes of a family err by the same multiple of their known errors",
)  # fmt: skip
def one_family_on_the_same_vectors(index: ReportIndex) -> Iterator[str]:
    if index.report.config.get("effort") not in (None, "normal"):
        return
    families: dict[tuple[object, ...], list[tuple[CodecRow, float]]] = defaultdict(list)
    for row in index.rows:
        found = _known(row)
        if found is not None:
            families[found[0]].append((row, math.log(row.rel_mse / found[1])))
    for some in families.values():
        middle = median(value for _, value in some)
        for row, value in some if len(some) >= FAMILY else ():
            room = SAME_VECTORS + CHANCE / math.sqrt(max(row.n_vectors, 1))
            if abs(value - middle) > room:
                said = f"{row.codec} at {row.bits} errs by {math.exp(value - middle):.3f} times"
                yield f"{said} what the others of its family do on the same {row.distribution} vectors"


def _residuals(values: dict[str, dict[str, float]]) -> Iterator[tuple[str, str, float]]:
    """Yield for each arm and text by what a value differs from that arm's level and that text's."""
    kept = {arm: some for arm, some in values.items() if len(some) > 1}
    if len(kept) < 2:  # noqa: PLR2004 - one alone has nothing beside it
        return
    level = {arm: median(some.values()) for arm, some in kept.items()}
    texts = {text for some in kept.values() for text in some}
    about = {t: median(some[t] - level[arm] for arm, some in kept.items() if t in some) for t in texts}
    for arm, some in kept.items():
        yield from ((arm, text, value - level[arm] - about[text]) for text, value in some.items())


def _coded(index: ReportIndex) -> Iterator[QuantRow]:
    """Yield the rows of caches that are compared, as far as they err at all."""
    for row in index.rows:
        arm = index.arms.get(row.arm)
        known = arm is not None and arm.role in ("candidate", "reference") and row.prompt in index.prompts
        if known and row.sum_squares > 0 and row.sum_squared_error > 0:
            yield row


@law(
    "QUALITY_IMPOSSIBLE", QUANT, "rows.sum_squared_error rows.sum_squares rows.prompt models.weights",
    "relative to other caches, a cache has about the same error on every text",
)  # fmt: skip
def errors_of_a_text(index: ReportIndex) -> Iterator[str]:
    values: dict[str, dict[str, float]] = defaultdict(dict)
    for row in _coded(index):
        if row.sum_squared_error > small_error(index) * row.sum_squares:
            values[row.arm][row.prompt] = math.log(row.sum_squared_error / row.sum_squares)
    bundled = bool(bundled_target(index))
    for arm, text, apart in _residuals(values):
        if abs(apart) > math.log(SAME_TEXT if bundled else OTHER_TEXT):
            yield f"{arm} has {math.exp(apart):.3f} times the error on {text} that it has on other texts"


@law(
    "QUALITY_IMPOSSIBLE", QUANT, "rows.sum_kl rows.sum_squared_error rows.prompt models.weights",
    "on a bundled model, relative to other caches, an error makes about the same divergence on every text",
)  # fmt: skip
def same_divergence_on_every_text(index: ReportIndex) -> Iterator[str]:
    values: dict[str, dict[str, float]] = defaultdict(dict)
    floor = floor_of_divergence(index)
    for row in _coded(index) if bundled_target(index) else ():
        if row.sum_kl > ABOVE * floor * row.n_positions and row.n_positions >= POSITIONS:
            values[row.arm][row.prompt] = math.log(
                row.sum_kl / row.n_positions / row.sum_squared_error * row.sum_squares
            )
    positions = {row.prompt: row.n_positions for row in _coded(index)}
    for arm, text, apart in _residuals(values):
        turned = index.arms[arm].cache.partition("@")[0] in ROTATED
        if abs(apart) > (TURNED if turned else NOT_TURNED) + OF_A_TEXT / math.sqrt(positions[text]):
            yield f"{arm} diverges {math.exp(apart):.2f} times as much on {text} as its error and others say"


@law(
    "QUALITY_IMPOSSIBLE", QUANT, "rows.sum_kl rows.sum_squared_error rows.sum_squares models.weights",
    "on a bundled model, errors of all codes make about the same divergence, if they code all layers",
)  # fmt: skip
def same_divergence_of_every_code(index: ReportIndex) -> Iterator[str]:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    for row in _coded(index) if bundled_target(index) else ():
        if index.arms[row.arm].options.get("raw_layers"):
            continue  # an error in the layers that are left counts for more or less than one in all of them
        told = (row.sum_kl, row.n_positions, row.sum_squared_error, row.sum_squares)
        sums[row.arm] = [one + more for one, more in zip(sums[row.arm], told, strict=True)]
    means = {
        arm: (error / squares, kl / n) for arm, (kl, n, error, squares) in sums.items() if n >= ENOUGH and kl
    }
    yield from odd_slopes(index, means, BUNDLED)


@law(
    "QUALITY_IMPOSSIBLE", PARITY, "rows.max_logit_error arms.options.dtype",
    "logits that were computed in half precision differ from single precision by its rounding at least",
)  # fmt: skip
def half_precision_rounds(index: ReportIndex) -> Iterator[str]:
    dtypes = {arm.role: arm.options.get("dtype") for arm in index.all_arms}
    least = ROUNDING.get(str(dtypes.get("candidate")))
    if least is None or dtypes.get("reference") != "float32":
        return
    for i, row in enumerate(index.rows):
        if row.max_logit_error is not None and row.max_logit_error < least:
            yield f"row {i}: logits of {dtypes['candidate']} differ from single precision by {row.max_logit_error:.3g}"
            return


@law(
    "TIMES_UNCLEAR", SPEC, "rows.decode_s rows.commits rows.prompt arms.options",
    "a round of a draft model takes about the same multiple of a plain token on prompts of similar length",
)  # fmt: skip
def rounds_take_as_long_on_every_prompt(index: ReportIndex) -> Iterator[str]:
    claimed = {claim.arm for claim in index.named(*QUOTIENTS)}
    plain = next(
        (a.name for a in index.all_arms if a.loop == OURS and a.options.get("block_size") == 1), None
    )
    if plain is None:
        return
    for arm in index.arms_of("candidate"):
        if arm.loop != OURS or arm.options.get("lookup") is not False or arm.name not in claimed:
            continue
        pairs = {
            p: found
            for p in index.measured.get(arm.name, {})
            if (found := _rounds(index, arm.name, plain, p))
        }
        for prompt, values in pairs.items():
            count = index.prompts[prompt].n_tokens
            near = [
                other for name, other in pairs.items()
                if name != prompt and count / ALIKE <= index.prompts[name].n_tokens <= count * ALIKE
            ]  # fmt: skip
            if len(near) >= OTHERS:
                times = [one / median(other[i] for other in near) for i, one in enumerate(values)]
                if min(times) > ROUND or max(times) * ROUND < 1:
                    shown = f"a round of {arm.name} takes {times[0]:.2f} times as long on {prompt}"
                    yield f"{shown} as on other prompts, measured in plain tokens"


def _rounds(index: ReportIndex, arm: str, plain: str, prompt: str) -> tuple[float, float] | None:
    """Return an arm's median and shortest round, each in plain tokens; None if repeats are too few."""
    if prompt not in index.prompts:
        return None
    both = []
    for name in (arm, plain):
        times = [round_of(row) for row in paces(index, name, prompt) if row.decode_s > 0]
        if len(times) < REPEATED:
            return None
        both.append((median(times), min(times)))
    return both[0][0] / both[1][0], both[0][1] / both[1][1]
