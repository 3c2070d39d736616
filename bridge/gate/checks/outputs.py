"""Checks of outputs: greedy tokens equal the oracle's, or part from them at a near tie."""

from collections.abc import Iterator

from bridge.gate.index import ReportIndex, check
from bridge.reports.kinds import NEEDLES, SOLUTIONS, SPECULATIVE, STOCK_LOOP
from bridge.reports.parts import Arm
from bridge.reports.repetition import first_difference, repeats_itself
from bridge.reports.rows import Decode, Divergence

# A tie is at most this many times as wide as the rounding that the engine measured at the same token.
TIES = 4.0
# For older reports, which do not record rounding: two units in the last place of bfloat16 near 32.
_UNMEASURED = 0.25


def _must_repeat(index: ReportIndex) -> list[Arm]:
    """Return the arms whose tokens must be an oracle's."""
    return [
        arm for arm in index.all_arms
        if arm.name in index.counted.by_arm and (arm.role == "candidate" or (arm.role != "baseline" and arm.oracle))
    ]  # fmt: skip


@check("ORACLE_MISSING", *SPECULATIVE)
def oracles_ran(index: ReportIndex) -> Iterator[str]:
    """An arm with an oracle has one on each of its prompts."""
    for arm in _must_repeat(index):
        if arm.oracle is None:
            yield f"{arm.name} names no oracle"
            continue
        lacking = [p for p in index.counted.by_arm.get(arm.name, {}) if not index.rows_of(arm.oracle, p)]
        if lacking:
            yield f"{arm.oracle}, the oracle of {arm.name}, did not run on {lacking[0]}"


@check("ORACLE_UNFIT", *SPECULATIVE)
def oracles_decode_plainly(index: ReportIndex) -> Iterator[str]:
    """An oracle is plain decoding in mlx-lm's loop over the same cache."""
    for arm in _must_repeat(index):
        oracle = index.arms.get(arm.oracle or "")
        if oracle is None:
            continue
        if oracle.role == "candidate" or index.drafts(oracle.name):
            yield f"{oracle.name}, the oracle of {arm.name}, drafts"
        elif oracle.loop != STOCK_LOOP:
            yield f"{oracle.name}, the oracle of {arm.name}, uses the loop {oracle.loop}; {STOCK_LOOP} is needed"
        elif oracle.cache != arm.cache:
            yield f"{arm.name} uses the cache {arm.cache}, and its oracle {oracle.name} uses {oracle.cache}"


@check("OUTPUT_DIVERGES", *SPECULATIVE, SOLUTIONS)
def outputs_equal_the_oracles(index: ReportIndex) -> Iterator[str]:
    """Greedy tokens equal the oracle's, or part from them at a near tie."""
    for arm in _must_repeat(index):
        yield from diverging(index, arm)


def diverging(index: ReportIndex, arm: Arm) -> Iterator[str]:
    """Yield the rows of an arm that leave the oracle's tokens without an explanation."""
    for row in index.rows_of(arm.name):
        oracle = index.oracle_of(row)
        fault = _unexplained(row, oracle) if oracle is not None and row.tokens != oracle.tokens else None
        if fault:
            yield f"{arm.name} on {row.prompt} differs from its oracle {arm.oracle} {fault}"


def _unexplained(row: Decode, oracle: Decode) -> str | None:
    at, parting = first_difference(row.tokens, oracle.tokens), row.divergence
    if parting is None:
        return f"at token {at}: no divergence is recorded"
    if parting.index != at:
        return f"at token {at}: the recorded divergence is at token {parting.index}"
    if at is None or at >= len(row.tokens) or at >= len(oracle.tokens):
        return f"at token {at}: one of the outputs ends there"
    if parting.margin is None and oracle.tokens[at] not in {token for token, _ in parting.best}:
        return f"at token {at}: the oracle's token is not one of its two best"
    return no_tie(parting)


def no_tie(parting: Divergence) -> str | None:
    """Return why two logits are too far apart for rounding to swap them; None if they are a near tie."""
    (_, high), (_, low) = parting.best
    margin = abs(high - low) if parting.margin is None else parting.margin
    most = _UNMEASURED if parting.rounding is None else TIES * parting.rounding
    if margin <= most:
        return None
    return f"at token {parting.index}: the logits lie {margin:.3g} apart; a near tie is at most {most:.3g}"


@check("DRAFTED_NOTHING", *SPECULATIVE, SOLUTIONS)
def candidates_draft(index: ReportIndex) -> Iterator[str]:
    """A candidate drafts in at least half of its rows."""
    for arm in index.arms_of("candidate"):
        rows = [row for row in index.rows_of(arm.name) if row.drafted is not None]
        idle = sum(not sum(row.drafted or []) for row in rows)
        if rows and idle * 2 > len(rows):
            yield f"{arm.name} drafted nothing in {idle} of {len(rows)} runs"


@check("OUTPUT_LOOPS", *NEEDLES)
def caches_keep_the_model_from_loops(index: ReportIndex) -> Iterator[str]:
    """A candidate repeats itself only if plain decoding does."""
    for arm in index.arms_of("candidate"):
        looping = [
            row.prompt for row in index.rows_of(arm.name)
            if repeats_itself(row.tokens) and not _plain_loops(index, row)
        ]  # fmt: skip
        if looping:
            yield f"{arm.name} repeats itself on {len({*looping})} prompts, such as {looping[0]}"


def _plain_loops(index: ReportIndex, row: Decode) -> bool:
    oracle = index.oracle_of(row)
    return oracle is not None and index.once(("loops", id(oracle)), lambda: repeats_itself(oracle.tokens))
