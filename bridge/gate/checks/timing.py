"""Checks of times: they add up, arms take turns, and equal runs take about equally long."""

import itertools
from collections import defaultdict
from collections.abc import Iterator

from bridge.gate.index import ReportIndex, check, seconds_of
from bridge.reports.claims.verify import passes_of
from bridge.reports.counted import decode_rate
from bridge.reports.kinds import COMMANDS, DECODED, RESTORED, SPECULATIVE, TIMED, TORCH_PARITY, VERIFY_L
from bridge.reports.parts import Claim
from bridge.reports.statistics import bounds_of_median

RATIOS = (
    "decode_speedup",
    "worst_speedup",
    "e2e_speedup",
    "decode_ratio",
    "plain_speedup",
    "worst_plain_speedup",
)
TIMES = (*RATIOS, "decode_tok_s")

# If the times of equal runs differ by more than this ratio, their median means nothing.
PREFILL_SPREAD, DECODE_SPREAD = 3.0, 2.0
_IN_SEQUENCE = 2
# A row's time that may be neither prefill nor decoding: at most this share of decoding, plus these seconds.
_HIDDEN, _HIDDEN_S = 0.03, 1e-3
_WARMED = "only the first run was slow: it found cold caches, or the later ones a prompt that was kept"
# Seconds by which rows of one process may seem to overlap, and by which `seconds` is rounded.
_OVERLAP, _ROUNDED = 1e-3, 0.05


@check("TIMES_CONTRADICT", *COMMANDS)
def rows_follow_each_other(index: ReportIndex) -> Iterator[str]:
    """Rows follow each other, within the run."""
    end, resumed = 0.0, index.option("resumed_rows")  # rows of an earlier, interrupted run
    first = resumed if isinstance(resumed, int) and not isinstance(resumed, bool) and resumed >= 0 else 0
    for i, row in enumerate(index.rows[first:], start=first):
        if row.started_s is None:
            continue  # an older report
        if row.started_s < end - _OVERLAP:
            yield f"row {i} started before the row above it had ended"
            return
        end = row.started_s + seconds_of(row)
    rows = sum(map(seconds_of, index.rows[first:]))
    if max(end, rows) > index.report.seconds + _ROUNDED:
        yield f"the rows took {max(end, rows):.4g} s, and the run {index.report.seconds:.4g} s"


@check("TIME_HIDDEN", *DECODED, TORCH_PARITY)
def times_of_a_row_add_up(index: ReportIndex) -> Iterator[str]:
    """A row's time is its prefill and decoding."""
    for i, row in enumerate(index.rows):
        rest = row.e2e_s - row.prefill_s - row.decode_s
        if abs(rest) > _HIDDEN * row.decode_s + _HIDDEN_S:
            where = f"(row {i}, arm {row.arm}, prompt {row.prompt})"
            yield f"{rest:.3g} of {row.e2e_s:.3g} s {where} is neither prefill nor decode time"


@check("NOT_INTERLEAVED", *SPECULATIVE, RESTORED, TORCH_PARITY)
def compared_arms_take_turns(index: ReportIndex) -> Iterator[str]:
    """Arms whose times are compared take turns."""
    for claim in index.claims_of(*RATIOS):
        longest = index.once(("turns", claim.arm, claim.against), lambda c=claim: _longest_turn(index, c))  # type: ignore[misc]
        if longest > _IN_SEQUENCE:
            yield f"{claim.name}: {longest} rows of {claim.arm} or {claim.against} ran in a row"


def _longest_turn(index: ReportIndex, claim: Claim) -> int:
    pair = (claim.arm, claim.against) if claim.against else tuple(index.arms)
    return _longest_run([row.arm for row in index.rows if row.arm in pair and not row.warmup])


def _longest_run(items: list[str]) -> int:
    return max((len([*run]) for _, run in itertools.groupby(items)), default=0)


@check("NOT_INTERLEAVED", VERIFY_L)
def lengths_take_turns(index: ReportIndex) -> Iterator[str]:
    """Lengths take turns."""
    turns: dict[int, list[str]] = defaultdict(list)
    for row in index.rows:
        if not row.warmup:
            turns[row.context].append(str(row.length))
    for context, lengths in turns.items():
        if len(set(lengths)) > 1 and _longest_run(lengths) > _IN_SEQUENCE:
            yield f"at context {context}, {_longest_run(lengths)} passes of one length ran in a row"


@check("PREFILL_SPREAD", *SPECULATIVE)
def prefill_is_steady(index: ReportIndex) -> Iterator[str]:
    """Prefill of one prompt takes about equally long each time."""
    for arm, prompt in _timed(index):
        seconds = [row.prefill_s for row in index.rows_of(arm, prompt)]
        least, most = bounds_of_median(seconds)
        if most > PREFILL_SPREAD * least:
            reason = _WARMED if seconds[0] > PREFILL_SPREAD * max(seconds[1:]) else machine(index)
            yield f"prefill (arm {arm}, prompt {prompt}) took {least:.3g} to {most:.3g} s; {reason}"


@check("DECODE_SPREAD", *TIMED, RESTORED)
def decoding_is_steady(index: ReportIndex) -> Iterator[str]:
    """Decoding of one prompt takes about equally long each time."""
    for arm, prompt in _timed(index):
        rates = [rate for row in index.rows_of(arm, prompt) if (rate := decode_rate(row))]
        least, most = bounds_of_median(rates) if rates else (1.0, 1.0)
        if most > DECODE_SPREAD * least:
            span = f"{least:.3g} to {most:.3g} tokens a second"
            yield f"decoding (arm {arm}, prompt {prompt}) ran at {span}; {machine(index)}"


def _timed(index: ReportIndex) -> Iterator[tuple[str, str]]:
    """Yield the arms that claims about time name, each with the prompts on which it ran."""
    names = {arm for claim in index.claims_of(*TIMES) for arm in (claim.arm, claim.against) if arm}
    for arm in sorted(names):
        for prompt in index.counted.by_arm.get(arm, {}):
            yield arm, prompt


@check("DECODE_SPREAD", VERIFY_L)
def passes_are_steady(index: ReportIndex) -> Iterator[str]:
    """The middle half of a length's passes takes equally long."""
    for (context, length), seconds in passes_of(index.data["rows"]).items():
        ordered, outer = sorted(seconds), len(seconds) // 4
        low, high = ordered[outer], ordered[-1 - outer]
        if high > DECODE_SPREAD * low:
            where = f"{length} tokens on {context}: the middle half of {len(seconds)} passes"
            yield f"{where} took {low:.3g} to {high:.3g} s; {machine(index)}"


@check("LOW_POWER", *TIMED, VERIFY_L, RESTORED, TORCH_PARITY)
def machine_ran_at_full_power(index: ReportIndex) -> Iterator[str]:
    """The machine had mains power, without low-power mode."""
    power = index.report.identity.power
    if power.get("low_power") is True:
        yield "the machine was in low-power mode"
    if power.get("plugged") is False:
        yield f"the machine ran on battery ({power.get('percent', '?')} %)"


def machine(index: ReportIndex) -> str:
    """Return what the machine was busy with, as far as the report says."""
    identity = index.report.identity
    load = f"the load was {identity.load[0]:g}" + (f" on {identity.cores} cores" if identity.cores else "")
    battery = identity.power.get("plugged") is False
    return load + (", and the machine ran on battery" if battery else "")
