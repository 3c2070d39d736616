"""Laws of pace: what a prefill, a round and a token may take, measured against one another in the same run."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from bridge.evidence.laws.identity import EXPERTS
from bridge.evidence.laws.law import DECODED, NATIVE, SPEC, SWEEP, TIMED, law
from bridge.evidence.laws.rounds import OURS
from bridge.evidence.names import SPEEDUPS
from bridge.evidence.report_index import LONG, ReportIndex, rate_of, took_of
from bridge.evidence.rows import Decode
from bridge.evidence.stats import APART, deviations_above, median

# A pass over all rows of a prompt costs at most what passes over one token or one block each cost together. Measured:
# a tenth of that on an idle machine, and up to a half on a busy one. Reading takes a few passes more: its last token,
# the first round, and what is set up.
PASSES, FEW = 1.2, 4
# Fewer repeats may each have been held up by what else the machine did.
REPEATED = 3
# A round of a loop drafts and verifies, so it takes at least as long as a token of the same loop. Measured: 1.0 for
# rounds of a lookup that proposes little, else 1.2 to 5.
ROUND = 1.15
# The same loop reads a prompt in the same way, whether it drafts afterwards or not. Measured: within 5 % on an idle
# machine; the first token may come with a whole round, or without one. A draft model reads the prompt too. Measured:
# 17 % of what its target takes, for the bundled models.
SAME_PREFILL, DRAFTER_READS, FIRST_ROUNDS = 1.1, 1.5, 1.5
# mlx-lm computes a token ahead, so it need not wait for each. Measured: 0.9 to 1.4 times the pace of verify1.
AHEAD = 3.0

# Both loops decode one token after the other, so that a prompt slows them alike. Measured: up to 1.26 times the median.
UNEVEN = 1.8

# Rates of whole thousandths were written down, and times computed from them.
THOUSANDTH, EXACTLY, MOST = 1e-3, 1e-5, 1e9
# Bytes a second that no memory reaches: several times as many as that of the fastest machines.
MEMORY = {"cpu": 5e12, "gpu": 50e12}
_ACTIVE = re.compile(r"(?<![A-Za-z])[aA]\d{1,3}(?:\.\d)?[bB](?![A-Za-z])")
WIDTHS = {"float32": 32, "float16": 16, "bfloat16": 16}
# Two pauses of a clock are never the same.
SAME_PAUSE, FEWEST_PAUSES = 1e-9, 8


def _most_s(row: Decode, tokens: int) -> float:
    """Return the most seconds that reading so many tokens takes a loop, as decoding verified rows in its passes."""
    passes = len(row.commits or ()) or row.decode_tokens
    rows = (sum(row.drafted or ()) + passes) / passes
    return PASSES * (tokens / rows + FEW) * row.decode_s / passes


@law(
    "TIME_MISPLACED", DECODED, "rows.prefill_s rows.decode_s rows.drafted prompts.n_tokens",
    "a prefill takes no longer than decoding as many rows in the same arm",
)  # fmt: skip
def prefill_within_passes(index: ReportIndex) -> Iterator[str]:
    for arm in index.measured:
        beyond, count = [], 0
        for prompt in (name for name in index.measured[arm] if name in index.prompts):
            rows = index.paced(arm, prompt)
            if not rows:
                continue
            count += len(rows)
            most = max(_most_s(row, index.prompts[prompt].n_tokens) for row in rows)
            beyond.append(min(row.prefill_s for row in rows) > most)
        if count >= REPEATED and sum(beyond) * 2 > len(beyond):
            shown = f"{sum(beyond)} of {len(beyond)} prompts"
            yield f"{arm} takes longer to read {shown} than to decode as many tokens"


def _apart(index: ReportIndex, one: str, other: str) -> float:
    """Return by how many standard deviations of chance an arm's prefills are longer than another's on its prompts."""
    return deviations_above(
        (
            [row.prefill_s for row in index.paced(one, prompt)],
            [row.prefill_s for row in index.paced(other, prompt)],
        )
        for prompt in index.measured.get(one, {})
    )


@law(
    "TIME_MISPLACED", SPEC, "rows.prefill_s rows.decode_s arms.loop arms.cache",
    "the engine's loop reads a prompt equally fast, whatever it drafts afterwards",
)  # fmt: skip
def same_prefill_of_one_loop(index: ReportIndex) -> Iterator[str]:
    arms = [arm for arm in index.all_arms if arm.loop == OURS and "runtime" not in arm.options]
    for one in arms:
        for other in (arm for arm in arms if arm.cache == one.cache and arm.name != one.name):
            beyond = [
                found for prompt in index.measured.get(one.name, {})
                if (found := _longer(index, one.name, other.name, prompt)) is not None
            ]  # fmt: skip
            if beyond and median(beyond) > 0 and _apart(index, one.name, other.name) >= APART:
                yield f"{one.name} takes longer than {other.name} to read the same prompts in the same loop"
                break


def _longer(index: ReportIndex, one: str, other: str, prompt: str) -> float | None:
    """Return how much longer than it may an arm reads a prompt than another one; None where that is unknown."""
    ours, theirs = index.paced(one, prompt), index.paced(other, prompt)
    if not ours or not theirs:
        return None
    first = median(row.decode_s / max(len(row.commits or row.tokens), 1) for row in ours)
    least, beside = (min(row.prefill_s for row in rows) for rows in (ours, theirs))
    more = (
        DRAFTER_READS if _has_draft_model(index, one) and not _has_draft_model(index, other) else SAME_PREFILL
    )
    return least - more * beside - FIRST_ROUNDS * first


def _has_draft_model(index: ReportIndex, name: str) -> bool:
    return index.arms[name].options.get("block_size") != 1 and not name.startswith("lookup/")


def paces(index: ReportIndex, arm: str, prompt: str) -> list[Decode]:
    """Return the decodings that show an arm's pace on a prompt; none if they are too few or too short to show it."""
    rows = index.paced(arm, prompt)
    return rows if len(rows) >= REPEATED else []


def round_of(row: Decode) -> float:
    """Return the seconds of a round, or of a token where nothing is drafted."""
    return row.decode_s / max(len(row.commits or ()) or row.decode_tokens, 1)


def _shorter(index: ReportIndex, one: str, other: str) -> tuple[float, bool] | None:
    """Return the median quotient of two arms' round times, and whether ``one`` is clearly faster on most prompts."""
    both = [
        ([*map(round_of, paces(index, one, prompt))], [*map(round_of, paces(index, other, prompt))])
        for prompt in index.measured.get(one, {})
    ]
    known = [(ours, theirs) for ours, theirs in both if ours and theirs and min(theirs) > 0]
    if not known:
        return None
    share = median(median(ours) / median(theirs) for ours, theirs in known)
    apart = sum(max(ours) * ROUND < min(theirs) for ours, theirs in known) * 2 > len(known)
    by_chance = deviations_above((theirs, [ROUND * took for took in ours]) for ours, theirs in known)
    return share, apart and by_chance >= APART


def _too_short(index: ReportIndex) -> Iterator[tuple[bool, str]]:
    """Yield which arms' rounds take less than they can, and whether all repeats say so on most prompts."""
    claimed = {claim.arm for claim in index.named(*SPEEDUPS, "decode_ratio", "decode_tok_s")}
    arms = [arm for arm in index.all_arms if arm.loop == OURS and arm.name in index.measured]
    plain = [arm for arm in arms if arm.options.get("block_size") == 1]
    lookups = [arm for arm in arms if arm.name.startswith("lookup/")]
    for arm in (one for one in arms if one.role == "candidate" and one.name in claimed):
        beside = [*plain, *(lookups if arm.options.get("lookup") is False else ())]
        for other in (one for one in beside if one.cache == arm.cache and one.name != arm.name):
            found = _shorter(index, arm.name, other.name)
            if found is not None and found[0] * ROUND < 1:
                what = "token" if other in plain else "round"
                yield found[1], f"a round of {arm.name} takes {found[0]:.2f} times a {what} of {other.name}"


@law(
    "SPEEDUP_IMPOSSIBLE", SPEC, "rows.decode_s rows.commits arms.loop arms.options",
    "a round takes at least as long as a token of the same loop without drafts, and with a draft model as one without",
)  # fmt: skip
def rounds_take_time(index: ReportIndex) -> Iterator[str]:
    yield from (said for apart, said in _too_short(index) if apart)


@law(
    "TIMES_UNCLEAR", SPEC, "rows.decode_s rows.commits arms.loop arms.options",
    "rounds do not seem shorter than a token, even within the spread of the repeats",
)  # fmt: skip
def rounds_seem_to_take_time(index: ReportIndex) -> Iterator[str]:
    yield from (said for apart, said in _too_short(index) if not apart)


@law(
    "CLOCK_IMPLAUSIBLE", (*SPEC, *NATIVE), "rows.decode_s arms.role",
    "mlx-lm is at most three times as fast as one forward pass and one wait per token",
)  # fmt: skip
def one_pass_a_token(index: ReportIndex) -> Iterator[str]:
    for check in index.arms_of("verify1"):
        for base in (arm for arm in index.arms_of("baseline") if arm.cache == check.cache):
            both = [
                [paces(index, arm.name, p) for arm in (base, check)]
                for p in index.measured.get(base.name, {})
            ]
            known = [(ours, theirs) for ours, theirs in both if ours and theirs]
            apart = sum(min(map(rate_of, ours)) > AHEAD * max(map(rate_of, theirs)) for ours, theirs in known)
            if apart * 2 > len(known):
                yield f"{base.name} is more than {AHEAD:g} times as fast as {check.name}"


@law(
    "CLOCK_IMPLAUSIBLE", (*TIMED, *SWEEP), "rows.decode_s rows.seconds models.parameters identity.device",
    "a pass takes as long at least as any memory needs to give half of the model's weights",
)  # fmt: skip
def weights_are_read(index: ReportIndex) -> Iterator[str]:
    target = index.target
    count = getattr(target, "parameters", None) if target is not None else None
    bits = WIDTHS.get(getattr(target, "dtype", ""))
    if type(count) is not int or bits is None or target.quantization or _has_experts(target):
        return
    memory = next(
        (rate for device, rate in MEMORY.items() if index.report.identity.device.startswith(device)), None
    )
    least = count * bits / 8 / 2 / memory if memory else 0.0
    took = median(
        round_of(row) if isinstance(row, Decode) else row.seconds for row in index.rows
        if not row.warmup and (not isinstance(row, Decode) or row.decode_tokens >= LONG)
    )  # fmt: skip
    if took < least:
        yield f"passes take {took:.3g} s; to read {count} parameters takes {least:.3g} s at least"


def _has_experts(model: Any) -> bool:
    """Return whether a pass reads a part of a model's weights alone: its name may tell the active part (30B-A3B)."""
    if _ACTIVE.search(model.id) or EXPERTS.search(model.id):
        return True
    return "moe" in f"{model.id} {getattr(model, 'architecture', '')}".lower()


@law(
    "CLOCK_IMPLAUSIBLE", (*DECODED, *SWEEP), "rows.decode_s rows.decode_tokens rows.seconds",
    "times are measured, not computed from rates of few digits",
)  # fmt: skip
def rates_have_all_digits(index: ReportIndex) -> Iterator[str]:
    rates = [
        count / seconds / THOUSANDTH for count, seconds in map(_count_and_seconds, index.rows) if count and seconds > 0
    ]  # fmt: skip
    whole = sum(abs(rate - round(rate)) < EXACTLY for rate in rates if rate < MOST)
    if len(rates) > 1 and whole * 2 > len(rates):
        yield f"{whole} of {len(rates)} rates are whole thousandths of a token a second"


def _count_and_seconds(row: Any) -> tuple[int, float]:
    return (row.decode_tokens, row.decode_s) if isinstance(row, Decode) else (row.length, row.seconds)


@law(
    "CLOCK_IMPLAUSIBLE", (*DECODED, *SWEEP), "rows.started_s rows.e2e_s rows.seconds",
    "the pauses between rows differ",
)  # fmt: skip
def pauses_differ(index: ReportIndex) -> Iterator[str]:
    rows = index.rows[index.resumed :]
    if any(row.started_s is None for row in rows):
        return
    pauses: dict[int, int] = defaultdict(int)
    for one, two in pairwise(rows):
        pauses[round((two.started_s - one.started_s - took_of(one)) / SAME_PAUSE)] += 1
    most, count = max(pauses.items(), key=lambda item: item[1], default=(0, 0))
    if len(rows) > FEWEST_PAUSES and count * 2 > len(rows):
        yield f"{count} of {len(rows)} rows are followed by the same pause of {most * SAME_PAUSE:.3g} s"


@law(
    "TIMES_UNCLEAR", SPEC[:1], "rows.decode_s arms.role arms.options.block_size",
    f"no prompt slows mlx-lm's loop by {UNEVEN:g} times as much beside the engine's loop without drafts as others do",
)  # fmt: skip
def even_baselines(index: ReportIndex) -> Iterator[str]:
    plain = [arm for arm in index.all_arms if arm.loop == OURS and arm.options.get("block_size") == 1]
    for base in index.arms_of("baseline"):
        for other in (arm for arm in plain if arm.cache == base.cache):
            quotients = {
                prompt: index.rate(other.name, prompt) / index.rate(base.name, prompt)
                for prompt in index.measured.get(base.name, {})
                if paces(index, base.name, prompt) and paces(index, other.name, prompt)
            }
            usual = median(quotients.values())
            odd = next((prompt for prompt, found in quotients.items() if found > UNEVEN * usual), None)
            if odd is not None:
                shown = f"{quotients[odd]:.2f} times as long as {other.name} on {odd}"
                yield f"{base.name} takes {shown}, and elsewhere {usual:.2f} times"
