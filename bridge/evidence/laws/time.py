"""Laws of time: where the seconds of a run went, and that a clock counted them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any

from bridge.evidence.laws.law import ALL, DECODED, SPEC, SWEEP, TIMED, law
from bridge.evidence.names import QUOTIENTS
from bridge.evidence.parts import Claim
from bridge.evidence.report_index import ReportIndex, took_of, where_of
from bridge.evidence.rows import Decode
from bridge.evidence.stats import APART, BY_CHANCE, TICK, at_least, deviations_above, median, shared_by_chance

# Reading a prompt takes both arms as long: a drafter's own share of it is small.
LONGER, SHORTER = 1.25, 0.7
# A difference that is smaller than this share of decoding changes no quotient much.
MATTERS = 0.1
# A difference this large changes every quotient, whatever share of prefill it is.
DECIDES = 0.35

# Most of a run is its rows. What else there is: caches are made, divergences looked into, the machine asked.
MOST = 0.6
SLEEPS = 3
BESIDE_S = 5.0

# What of a row may be neither prefill nor decoding: the engine reads one clock for both, so that nothing is left.
HIDDEN, HIDDEN_S = 1e-3, 1e-3

# A performance counter gives far more digits than these.
DIGITS = 1e-6
COPY = 1e-9
# Repeats on the quietest machines differ by a ten-thousandth of their time.
WANDER, REPEATED = 1e-5, 3
# Each arm is held against all others, so that many more would take long; a report has at most a hundred arms.
SERIES = 100

# Of one clock: rows may not overlap by more, and `seconds` are rounded.
OVERLAP = 1e-3
ROUNDED = 0.05


def _prefills(index: ReportIndex, arm: str | None, prompt: str) -> list[float]:
    return [row.prefill_s for row in index.paced(arm, prompt)]


def misplaced(index: ReportIndex, claim: Claim) -> tuple[bool, bool]:
    """Return whether the prefills of a claim's arms differ by what decides its quotient, and if not by chance.

    Chance separates all repeats of two arms on few prompts, and seldom in the same direction on several.
    """
    about = ("misplaced", claim.arm, claim.against, where_of(claim))
    found = index.once(about, lambda: _apart(index, claim))
    if found is None:
        return False, False
    longer, more, took, shown = found
    decides = more > DECIDES * took or (longer > LONGER and more > MATTERS * took)
    if claim.name == "e2e_speedup":
        decides = decides or (longer < SHORTER and -more > MATTERS * took)
    return decides and claim.value > 1, shown


def _apart(index: ReportIndex, claim: Claim) -> tuple[float, float, float, bool] | None:
    """Return medians over prompts: quotient and difference of both arms' prefills, decoding; and if it is no chance."""
    quotients, excess, apart, decoding, pairs = [], [], [], [], []
    for prompt in index.common(claim):
        one, other = (_prefills(index, arm, prompt) for arm in (claim.arm, claim.against))
        if not one or not other:
            continue
        quotients.append(median(one) / median(other))
        excess.append(median(one) - median(other))
        decoding.append(median(row.decode_s for row in index.paced(claim.arm, prompt)))
        apart.append(min(one) > max(other) or max(one) < min(other))
        pairs.append((one, other))
    if not quotients:
        return None
    shown = sum(apart) * 2 > len(apart) and abs(deviations_above(pairs)) >= APART
    return median(quotients), median(excess), median(decoding), shown


def _same_cache(index: ReportIndex, claim: Claim) -> bool:
    return index.arms[claim.arm or ""].cache == index.arms[claim.against or ""].cache


@law(
    "TIME_MISPLACED", SPEC, "rows.prefill_s rows.decode_s",
    "prefill of one prompt takes every arm over the same cache equally long",
)  # fmt: skip
def equal_prefill(index: ReportIndex) -> Iterator[str]:
    for claim in index.named(*QUOTIENTS):
        if _same_cache(index, claim):
            decides, shown = misplaced(index, claim)
            if decides and shown:
                yield f"{claim.name}: prefill of {claim.arm} and {claim.against} differ on the same prompts"


@law(
    "TIMES_UNCLEAR", SPEC, "rows.prefill_s rows.decode_s",
    "the spread of prefill is small beside decoding",
)  # fmt: skip
def steady_prefill(index: ReportIndex) -> Iterator[str]:
    for claim in index.named(*QUOTIENTS):
        if _same_cache(index, claim):
            decides, shown = misplaced(index, claim)
            if decides and not shown:
                yield f"{claim.name}: prefill of {claim.arm} and {claim.against} varies by more than decides the claim"


@law(
    "TIME_UNACCOUNTED", TIMED, "rows.e2e_s seconds",
    "the rows of a run take most of its seconds",
)  # fmt: skip
def rows_fill_the_run(index: ReportIndex) -> Iterator[str]:
    if index.resumed or index.report.seconds <= 0:
        return
    took = math.fsum(map(took_of, index.rows))
    if took < MOST * (index.report.seconds - _longest_pauses(index)) - BESIDE_S:
        yield f"the rows took {took:.4g} s, and the run {index.report.seconds:.4g} s"


def _longest_pauses(index: ReportIndex) -> float:
    """Return the longest times between two rows, added up: a machine may have slept."""
    starts = [(row.started_s, took_of(row)) for row in index.rows if row.started_s is not None]
    return math.fsum(sorted(two - one - took for (one, took), (two, _) in pairwise(starts))[-SLEEPS:])


@law(
    "TIME_HIDDEN", DECODED, "rows.prefill_s rows.decode_s rows.e2e_s",
    "e2e_s is prefill_s plus decode_s in every row, claimed or not",
)  # fmt: skip
def whole_is_its_parts(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        rest = row.e2e_s - row.prefill_s - row.decode_s
        if rest > HIDDEN * row.e2e_s + HIDDEN_S:
            yield f"row {i}: {rest:.3g} of {row.e2e_s:.3g} s are neither prefill nor decoding"


@law(
    "CLOCK_IMPLAUSIBLE", DECODED, "rows.decode_s rows.decode_tokens",
    "decoding takes time",
)  # fmt: skip
def decoding_takes_time(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        if row.decode_tokens and not row.decode_s:
            yield f"row {i}: {row.decode_tokens} tokens were decoded in no time"


@law(
    "CLOCK_IMPLAUSIBLE", (*DECODED, *SWEEP), "rows.prefill_s rows.decode_s rows.e2e_s rows.seconds",
    "seconds have the clock's full resolution",
)  # fmt: skip
def full_resolution(index: ReportIndex) -> Iterator[str]:
    times = [
        value for row in index.rows for value in
        ((row.prefill_s, row.decode_s, row.e2e_s) if isinstance(row, Decode) else (row.seconds,)) if value > 0
    ]  # fmt: skip
    rounded = sum(abs(value / DIGITS - round(value / DIGITS)) < COPY for value in times)
    if times and rounded * 2 > len(times):
        yield f"{rounded} of {len(times)} times are whole microseconds"


@law(
    "CLOCK_IMPLAUSIBLE", DECODED, "rows.prefill_s rows.decode_s",
    "no two rows share a time, nor the quotient of two times, to the last digit",
)  # fmt: skip
def no_copies(index: ReportIndex) -> Iterator[str]:
    decoded = [row for row in index.rows if isinstance(row, Decode) and row.decode_s > 0]
    prefills, decodings = [row.prefill_s for row in decoded], [row.decode_s for row in decoded]
    quotients = [one / two for one, two in zip(prefills, decodings, strict=True)]
    # A tick more or less in either time changes their quotient by so much.
    ticks = [
        q * TICK * (1 / one + 1 / two) for q, one, two in zip(quotients, prefills, decodings, strict=True)
    ]
    for name, values, expected in (
        ("a prefill", [f"{value:.12g}" for value in prefills], shared_by_chance(prefills)),
        ("a decoding", [f"{value:.12g}" for value in decodings], shared_by_chance(decodings)),
        (
            "a quotient of prefill and decoding",
            [f"{value:.10g}" for value in quotients],
            shared_by_chance(quotients, median(ticks) if ticks else TICK),
        ),
    ):
        counts = Counter(values)
        shared = sum(math.comb(times, 2) for times in counts.values())
        if shared and at_least(shared, expected) < BY_CHANCE:
            value, most = counts.most_common(1)[0]
            yield f"{name} of {value} appears {most} times"


@law(
    "CLOCK_IMPLAUSIBLE", (*DECODED, *SWEEP), "rows.decode_s rows.seconds",
    "repeats differ, and the times of one arm are not a constant multiple of another arm's",
)  # fmt: skip
def times_wander(index: ReportIndex) -> Iterator[str]:
    series: dict[Any, dict[Any, float]] = defaultdict(dict)
    for row in index.rows:
        if not row.warmup:
            decoded = isinstance(row, Decode)
            name, cell = (row.arm, row.prompt) if decoded else (row.length, row.context)
            series[name][cell, row.repeat] = row.decode_s if decoded else row.seconds
    for name, times in series.items():
        cells: dict[Any, list[float]] = defaultdict(list)
        for (cell, _), value in times.items():
            if value > 0:
                cells[cell].append(value)
        spreads = [max(some) / min(some) - 1 for some in cells.values() if len(some) >= REPEATED]
        if spreads and median(spreads) < WANDER:
            yield f"repeats of {name} differ by {median(spreads):.2g} of their time: they are copies"
    fewest = REPEATED + 1 if index.report.kind in SWEEP else 2 * REPEATED
    for one, other in combinations(series, 2) if len(series) <= SERIES else ():
        pairs = [(a, series[other].get(key, 0.0)) for key, a in series[one].items()]
        shares = [a / b for a, b in pairs if a > 0 and b > 0]
        if len(shares) >= fewest and max(shares) / min(shares) - 1 < WANDER:
            yield f"every time of {one} is that of {other} times {median(shares):.4g}"


@law("CLOCK_IMPLAUSIBLE", DECODED, "rows.prefill_s", "repeats of a prefill differ")
def prefills_wander(index: ReportIndex) -> Iterator[str]:
    reading: dict[Any, list[float]] = defaultdict(list)
    for row in index.rows:
        if not row.warmup:
            reading[row.arm, row.prompt].append(row.prefill_s)
    spreads = [max(some) / min(some) - 1 for some in reading.values() if len(some) >= REPEATED]
    if spreads and median(spreads) < WANDER:
        yield f"repeats of a prefill differ by {median(spreads):.2g} of their time: they are copies"


@law(
    "CLOCK_IMPLAUSIBLE", ALL, "rows.started_s rows.e2e_s rows.seconds seconds",
    "each row starts after the row before it has ended, and the last row ends within the run",
)  # fmt: skip
def starts_in_order(index: ReportIndex) -> Iterator[str]:
    rows = index.rows[index.resumed :]
    starts = [row.started_s for row in rows]
    known = [start is not None for start in starts]
    if not any(known):
        if index.report.run is not None and rows:
            yield "the report names its run, and no row says when it started"
        return
    if not all(known):
        yield f"row {index.resumed + known.index(False)} does not say when it started"
        return
    end = 0.0
    for i, (row, start) in enumerate(zip(rows, [start or 0.0 for start in starts], strict=True)):
        if start < end - OVERLAP:
            yield f"row {index.resumed + i} started before the one above it had ended"
            return
        end = start + took_of(row)
    if end > index.report.seconds + ROUNDED:
        yield f"the last row ended after {end:.4g} s of a run of {index.report.seconds:.4g} s"
