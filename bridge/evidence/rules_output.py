"""Rules about decoded output: consistent rows, tokens that equal the oracle's, text that is not degenerate."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator

from bridge.evidence.names import ACCEPTED, SPEEDUPS, TIMED
from bridge.evidence.parts import Arm
from bridge.evidence.report_index import STOCK_LOOP, ReportIndex
from bridge.evidence.rows import Decode, Divergence, ParityRow, QuantRow, VerifyRow
from bridge.evidence.rule import rule
from bridge.evidence.stats import BY_CHANCE, at_least, loops, shared_by_chance

# Two logits of a half-precision model that are this near change places with the order of a sum: two units in the
# last place of bfloat16 between 16 and 32.
NEAR_TIE = 0.25
# On a CPU, passes of other sizes move a float32 logit by some millionths. A packed cache moves it by steps of codes.
RAW_TIE = 1e-3
# A block of rows and a single row round in unlike ways. As the engine sees it, a tie is at most four times as wide as
# the rounding that it measured, which is a few units in the last place of the largest logit.
_SLACK, _UNITS, _LARGEST = 4.0, 2.0, 128.0
_UNIT = {"bfloat16": 2**-7, "float16": 2**-10}

# Kinds of report in which candidates have to repeat plain decoding.
_DRAFTING = ("kakeya.spec-bench", "kakeya.acceptance")

# A first run, and one that is profiled.
SET_ASIDE = 2

# `seconds` of a report are written to the millisecond.
_ROUNDED = 0.01

# The share of prompts whose plain decoding may repeat itself.
_DEGENERATE = 0.2


@rule("ROW_CONTRADICTS")
def row_contradicts(index: ReportIndex) -> Iterator[str]:
    """The figures of one row must fit together."""
    for i, row in enumerate(index.rows):
        if isinstance(row, Decode):
            odd = next(_odd_decode(row, index.report.config.max_tokens), None)
        elif isinstance(row, QuantRow):
            odd = "more equal top tokens than positions" if row.same_top > row.n_positions else None
        else:
            odd = "drafts of unlike length" if len(row.reference) != len(row.candidate) else None
        if odd:
            yield f"row {i}: {odd}"
    yield from longer_than_the_run(index, "e2e_s")


def longer_than_the_run(index: ReportIndex, field: str) -> Iterator[str]:
    """Yield that rows took longer than the run that they are of; those of an earlier, interrupted run excepted."""
    took = sum(getattr(row, field, 0.0) for row in index.rows[index.resumed :])
    if took > index.report.seconds + _ROUNDED:
        yield f"the rows took {took:.4g} s, and the run {index.report.seconds:.4g} s"


def _odd_decode(row: Decode, most: int) -> Iterator[str]:
    if row.decode_tokens != max(0, len(row.tokens) - 1):
        yield f"decode_tokens is {row.decode_tokens}; the row has {len(row.tokens)} tokens with the first one"
    if len(row.tokens) > most:
        yield f"{len(row.tokens)} tokens were generated; max_tokens is {most}"
    if row.prefill_s + row.decode_s > row.e2e_s * 1.001:
        yield "prefill_s and decode_s add up to more than e2e_s"
    rounds = [row.commits, row.drafted, row.accepted]
    if None in rounds:
        if rounds != [None, None, None]:
            yield "commits, drafted and accepted must all be present, or none"
        return
    yield from _odd_rounds(row.commits or [], row.drafted or [], row.accepted or [], len(row.tokens))


def _odd_rounds(commits: list[int], drafted: list[int], accepted: list[int], tokens: int) -> Iterator[str]:
    if not len(commits) == len(drafted) == len(accepted):
        yield "rounds are not counted alike"
    for i, (c, d, a) in enumerate(zip(commits, drafted, accepted, strict=False)):
        if a > d or c > a + 1:
            yield f"round {i} committed {c} tokens, with {a} of {d} drafts accepted"
    # The last round may reach beyond the stop.
    if sum(commits) < tokens - 1 or (commits and sum(commits[:-1]) >= max(tokens, 1)):
        yield f"rounds committed {sum(commits)} tokens, and {tokens} were put out"


@rule("ROW_REPEATED")
def row_repeated(index: ReportIndex) -> Iterator[str]:
    """No measurement may appear twice, under one name or two."""
    names = Counter(filter(None, map(_name, index.rows)))
    for name, times in names.items():
        if times > 1:
            yield f"the row {' '.join(map(str, name))} appears {times} times"
    # An answer of one token is decoded in no time, so that one tick may hold several of them.
    timed = [row for row in index.rows if isinstance(row, Decode) and row.decode_s > 0]
    clocks = Counter((row.prefill_s, row.decode_s, row.e2e_s) for row in timed)
    shared = sum(math.comb(times, 2) for times in clocks.values())
    by_chance = [
        shared_by_chance(some) for some in ([r.prefill_s for r in timed], [r.decode_s for r in timed])
    ]
    if not shared or at_least(shared, math.prod(by_chance) / math.comb(len(timed), 2)) >= BY_CHANCE:
        return
    for clock, times in clocks.items():
        if times > 1:
            yield f"{times} rows took the same {clock[2]:g} s to the last digit"


def _name(row: object) -> tuple[Hashable, ...] | None:
    if isinstance(row, Decode):
        return (row.arm, row.prompt, "warm-up" if row.warmup else "repeat", row.repeat)
    if isinstance(row, QuantRow):
        return (row.arm, row.prompt)
    if isinstance(row, VerifyRow):
        return (row.length, "on", row.context, "warm-up" if row.warmup else "repeat", row.repeat)
    return (row.prompt, "block", row.block) if isinstance(row, ParityRow) else None


@rule("ROWS_SET_ASIDE")
def rows_set_aside(index: ReportIndex) -> Iterator[str]:
    """At most two runs of an arm on a prompt may be set aside."""
    aside = Counter((row.arm, row.prompt) for row in index.rows if row.warmup)
    for (arm, prompt), times in aside.items():
        if times > SET_ASIDE:
            yield f"{times} runs of {arm} on {prompt} are marked as warm-up; at most {SET_ASIDE} may be"


@rule("ORACLE_UNFIT")
def oracle_unfit(index: ReportIndex) -> Iterator[str]:
    """An oracle must be plain decoding over the same cache."""
    for arm in _bound(index):
        oracle = index.arms.get(arm.oracle or "")
        if oracle is None:
            continue
        drafts = any(sum(row.drafted or []) for row in index.all_decodes(oracle.name))
        if oracle.role == "candidate" or drafts:
            yield f"{oracle.name}, the oracle of {arm.name}, drafts"
        elif oracle.loop != STOCK_LOOP:
            yield f"{oracle.name}, the oracle of {arm.name}, uses the loop {oracle.loop}; {STOCK_LOOP} is needed"
        elif oracle.cache != arm.cache:
            yield f"the arm {arm.name} uses the cache {arm.cache}, and its oracle {oracle.name} uses {oracle.cache}"


@rule("ORACLE_MISSING")
def oracle_missing(index: ReportIndex) -> Iterator[str]:
    """An arm that must repeat an oracle's tokens must have an oracle on each of its prompts."""
    for arm in _bound(index):
        if arm.oracle is None:
            yield f"{arm.name} names no oracle"
        else:
            lacks = [p for p in index.measured.get(arm.name, {}) if not index.decodes(arm.oracle, p)]
            if lacks:
                yield f"{arm.oracle} did not run on {lacks[0]}"


@rule("OUTPUT_DIVERGES")
def output_diverges(index: ReportIndex) -> Iterator[str]:
    """Greedy tokens must equal the oracle's, or part from them at a near tie."""
    for arm in _bound(index):
        yield from diverging(index, arm)


def diverging(index: ReportIndex, arm: Arm) -> Iterator[str]:
    """Yield what of an arm's rows is not its oracle's output, and why that is not explained."""
    for row in index.all_decodes(arm.name):
        oracle = index.oracle_of(row)
        odd = parting(index, row, oracle) if oracle is not None else None
        if odd:
            yield f"{arm.name} on {row.prompt} differs from its oracle {arm.oracle} {odd}"


def near_tie(index: ReportIndex, found: Divergence, cache: str | None) -> float:
    """Return how far apart two logits may lie that rounding lets change places, over a cache of this name."""
    if cache == "raw" and index.report.identity.device == "cpu" and index.in_float32:
        return RAW_TIE
    unit = _UNIT.get(getattr(index.target, "dtype", ""), 0.0)
    rounding = getattr(found, "rounding", None)
    if not unit or not isinstance(rounding, int | float):
        return NEAR_TIE
    largest = min(max(abs(logit) for _, logit in found.best), _LARGEST)
    return max(NEAR_TIE, _SLACK * min(float(rounding), _UNITS * unit * largest))


def parting(index: ReportIndex, row: Decode, oracle: Decode) -> str | None:
    """Return where a row leaves an oracle's tokens and why that is not explained; None if all is well."""
    if row.tokens == oracle.tokens:
        return None
    at = first_difference(row.tokens, oracle.tokens)
    odd = _unexplained(index, row, oracle, at)
    return f"at token {at}: {odd}" if odd else None


def first_difference(a: list[int], b: list[int]) -> int:
    """Return the first index at which two sequences are not alike, their shorter length where one begins the other."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _unexplained(index: ReportIndex, row: Decode, oracle: Decode, at: int) -> str | None:
    if row.divergence is None:
        return "no divergence is recorded"
    if row.divergence.index != at:
        return f"the recorded divergence is at token {row.divergence.index}"
    if at >= len(row.tokens) or at >= len(oracle.tokens):
        return "one of the outputs ends there"
    (first, high), (second, low) = row.divergence.best
    margin, most = abs(high - low), near_tie(index, row.divergence, index.arms[row.arm].cache)
    if {first, second} != {row.tokens[at], oracle.tokens[at]}:
        # Of numbers of so few digits, three may be near one another.
        told = getattr(row.divergence, "margin", None)
        near = isinstance(told, int | float) and margin <= told and most > NEAR_TIE
        if not near or oracle.tokens[at] not in (first, second):
            return "the oracle's two best tokens are not the two that differ"
        margin = float(told or 0.0)
    return f"the logits lie {margin:.3g} apart; a near tie is at most {most:.3g}" if margin > most else None


@rule("OUTPUT_DEGENERATE")
def output_degenerate(index: ReportIndex) -> Iterator[str]:
    """Only the poison arm may fall into a loop that plain decoding does not fall into."""
    plain = index.arms_of("baseline")
    for arm in index.arms_of("candidate", "identity", "reference"):
        for row in index.all_decodes(arm.name):
            oracle = index.oracle_of(row) or next(
                (other for base in plain for other in index.decodes(base.name, row.prompt)), None
            )
            faithful = oracle is not None and (loops(oracle.tokens) or _parted_at_a_tie(index, row))
            if loops(row.tokens) and not faithful:
                yield f"{arm.name} on {row.prompt} repeats itself, and plain decoding does not: {row.text[-40:]!r}"


def _parted_at_a_tie(index: ReportIndex, row: Decode) -> bool:
    """Return whether a row went another way than its oracle at a near tie: that way may end in a loop."""
    oracle = index.oracle_of(row)
    if oracle is None or index.report.kind not in _DRAFTING or row.tokens == oracle.tokens:
        return False
    return parting(index, row, oracle) is None


@rule("WORKLOAD_DEGENERATE")
def workload_degenerate(index: ReportIndex) -> Iterator[str]:
    """Speed and acceptance must not be measured on text that repeats itself."""
    for claim in index.named(*TIMED, *ACCEPTED):
        prompts = index.common(claim)
        looping = [p for p in prompts if _loops(index, claim.arm, p)]
        if len(looping) > _DEGENERATE * len(prompts):
            yield f"{claim.name}: {claim.arm} repeats itself on {len(looping)} of {len(prompts)} prompts"


def _loops(index: ReportIndex, arm: str | None, prompt: str) -> bool:
    def look() -> bool:
        return any(loops(tokens) for tokens in {tuple(row.tokens) for row in index.decodes(arm, prompt)})

    return index.once(("loops", arm, prompt), look)


def _bound(index: ReportIndex) -> list[Arm]:
    """Return the arms whose tokens have to be an oracle's: candidates, and whatever is said to be faster."""
    faster = {claim.arm for claim in index.named(*SPEEDUPS)}
    return [
        arm for arm in index.all_arms
        if (arm.role == "candidate" or arm.name in faster) and arm.name in index.measured
    ]  # fmt: skip
