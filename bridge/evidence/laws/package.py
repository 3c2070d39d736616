"""Laws of the dflash package, which runs the same draft model as the engine's own loop beside it."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.evidence.bundled import bundled_target
from bridge.evidence.laws.law import SPEC, law
from bridge.evidence.laws.rounds import OURS
from bridge.evidence.parts import Arm
from bridge.evidence.report_index import LONG, ReportIndex
from bridge.evidence.rows import Decode
from bridge.evidence.stats import median

PACKAGE = "dflash."
# Both draft the same but for rounding. Measured over all prompts of a report: 1.09 at most.
ALIKE, ENOUGH = 1.25, 100
# A round of the package over one of ours. Measured: 1.7 to 2.05 with bundled models. With larger ones, our products of
# few rows are up to 3.3 times as fast as mlx-lm's.
SLOWER, SLOWER_OF_LARGER = 2.6, 4.5


def _beside(index: ReportIndex) -> Iterator[tuple[Arm, Arm]]:
    """Yield each arm of ours that drafts by the draft model alone, with one of the package."""
    ours = (
        arm for arm in index.all_arms
        if arm.loop == OURS and arm.options.get("lookup") is False and arm.options.get("adaptive") is False
        and arm.options.get("block_size") != 1 and "runtime" not in arm.options
    )  # fmt: skip
    packages = [arm for arm in index.all_arms if arm.loop.startswith(PACKAGE)]
    for arm in ours:
        for other in packages:
            if (arm.cache, arm.options.get("block_size")) == (other.cache, other.options.get("block_size")):
                yield arm, other


def _rows(index: ReportIndex, arm: Arm, prompt: str) -> list[Decode]:
    return [row for row in index.decodes(arm.name, prompt) if row.commits and row.decode_tokens >= LONG]


@law(
    "ROUNDS_CONTRADICT", SPEC, "rows.commits rows.tokens arms.loop arms.options.block_size",
    f"where the package gives the same tokens with the same draft model, it takes as many rounds, but for a factor of "
    f"{ALIKE:g}",
)  # fmt: skip
def same_drafts_of_the_package(index: ReportIndex) -> Iterator[str]:
    for ours, package in _beside(index):
        both = [
            (one[0], other[0]) for prompt in index.measured.get(ours.name, {})
            if (one := _rows(index, ours, prompt)) and (other := _rows(index, package, prompt))
            and one[0].tokens == other[0].tokens
        ]  # fmt: skip
        rounds, others = (sum(len(pair[side].commits or []) for pair in both) for side in (0, 1))
        tokens = sum(len(one.tokens) for one, _ in both)
        if tokens >= ENOUGH and max(rounds, others) > ALIKE * min(rounds, others):
            yield f"{ours.name} takes {rounds} rounds for {tokens} tokens, and {package.name} takes {others}"


def _round_s(rows: list[Decode]) -> float:
    return median(row.decode_s / len(row.commits or [0]) for row in rows)


@law(
    "TIMES_UNCLEAR", SPEC, "rows.decode_s rows.commits arms.loop",
    f"a round of the package takes at most {SLOWER:g} times as long as one of ours with a bundled model, and "
    f"{SLOWER_OF_LARGER:g} times with another",
)  # fmt: skip
def pace_of_the_package(index: ReportIndex) -> Iterator[str]:
    most = SLOWER if bundled_target(index) else SLOWER_OF_LARGER
    for ours, package in _beside(index):
        quotients = [
            _round_s(theirs) / _round_s(own)
            for prompt in index.measured.get(ours.name, {})
            if (own := _rows(index, ours, prompt)) and (theirs := _rows(index, package, prompt))
        ]
        if quotients and median(quotients) > most:
            yield f"a round of {package.name} takes {median(quotients):.2f} times as long as one of {ours.name}"
