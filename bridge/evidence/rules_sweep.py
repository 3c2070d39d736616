"""Rules about the cost of verifying L tokens, and about two implementations of one drafter."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator

from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rows import VerifyRow
from bridge.evidence.rule import rule
from bridge.evidence.rules_output import longer_than_the_run
from bridge.evidence.rules_speed import DECODE_SPREAD, IN_SEQUENCE, SAMPLES, longest_run
from bridge.evidence.stats import median

# Tolerance by which a pass over one token may be slower than a pass over several, and one over several than one over
# more if weights are quantized: Metal multiplies these row by row up to some 5 to 31 rows, and from there on in blocks.
_SLOWER, _ROW_BY_ROW = 1.2, 2.5

# A draft shorter than this says nothing about whether it repeats itself, and fewer drafts nothing about the others.
_SHORT, _FEW = 4, 8


@rule("SPEEDUP_SAMPLES")
def speedup_samples(index: ReportIndex) -> Iterator[str]:
    """Each length must be verified at least five times."""
    for (length, context), rows in _groups(index).items():
        if len(rows) < SAMPLES:
            yield f"{length} tokens on {context} were verified {len(rows)} times; at least {SAMPLES} passes are needed"


@rule("DECODE_SPREAD")
def decode_spread(index: ReportIndex) -> Iterator[str]:
    """Half of the passes of one length must take about equally long: their median is claimed."""
    for (length, context), rows in _groups(index).items():
        low, high = _middle_half(sorted(row.seconds for row in rows))
        if high > DECODE_SPREAD * low:
            yield f"{length} tokens on {context}: the middle half of {len(rows)} passes took {low:.3g} to {high:.3g} s"


@rule("NOT_INTERLEAVED")
def not_interleaved(index: ReportIndex) -> Iterator[str]:
    """Lengths must take turns."""
    turns: dict[int, list[str]] = defaultdict(list)
    for row in index.rows:
        if not row.warmup:
            turns[row.context].append(str(row.length))
    for context, lengths in turns.items():
        if len(set(lengths)) > 1 and longest_run(lengths) > IN_SEQUENCE:
            yield f"at context {context}, {longest_run(lengths)} passes of one length ran in a row"


@rule("ROW_CONTRADICTS")
def row_contradicts(index: ReportIndex) -> Iterator[str]:
    """All rows of a report must be timed over the one cache that it is about."""
    for cache in sorted({row.cache for row in index.rows} - {index.report.config.cache}):
        yield f"rows were timed over {cache}, and the report is about {index.report.config.cache}"
    yield from longer_than_the_run(index, "seconds")


@rule("SLOW_ORACLE")
def slow_oracle(index: ReportIndex) -> Iterator[str]:
    """No pass may take clearly longer than a pass over more tokens."""
    yield from (said for apart, said in _longer(index) if apart)


@rule("TIMES_UNCLEAR")
def times_unclear(index: ReportIndex) -> Iterator[str]:
    """Passes must not contradict one another, even within the spread of the repeats."""
    yield from (said for apart, said in _longer(index) if not apart)


def _longer(index: ReportIndex) -> Iterator[tuple[bool, str]]:
    """Yield which passes took longer than longer ones, and whether that cannot be chance."""
    groups, quantized = _groups(index), bool(index.target is not None and index.target.quantization)
    times = {name: sorted(row.seconds for row in rows) for name, rows in groups.items()}
    for context in sorted({context for _, context in times}):
        lengths = sorted(length for length, other in times if other == context)
        fastest, least = [math.inf], math.inf
        for length in reversed(lengths):
            took = times[length, context]
            seconds, limit = median(took), _ROW_BY_ROW if quantized and length > 1 else _SLOWER
            if seconds > limit * least:
                said = f"{length} tokens took {seconds:.3g} s, and more tokens {least:.3g} s"
                yield _is_clear(took, fastest), f"at context {context}, {said}"
            if seconds < least:
                fastest, least = took, seconds


def _is_clear(took: list[float], less: list[float]) -> bool:
    """Return whether each of enough passes took longer than each other one, on a machine that had nothing else to do.

    Chance separates five passes from five others in 1 of 126 pairs of lengths, ten from ten in 1 of 92,378.
    """
    few = min(len(took), len(less)) < SAMPLES
    busy = any(high > DECODE_SPREAD * low for low, high in map(_middle_half, (took, less)))
    return not few and not busy and took[0] > less[-1]


def _middle_half(ordered: list[float]) -> tuple[float, float]:
    """Return the bounds of the middle half of sorted times."""
    outer = len(ordered) // 4
    return ordered[outer], ordered[-1 - outer]


@rule("ROW_REPEATED")
def row_repeated(index: ReportIndex) -> Iterator[str]:
    """Most passes of one length must not take the same time to the last digit."""
    for (length, context), rows in _groups(index).items():
        same = Counter(row.seconds for row in rows).most_common(1)[0][1]
        if same > 1 and same * 2 > len(rows):
            yield f"{same} of {len(rows)} passes over {length} tokens on {context} took the same to the last digit"


@rule("SPEEDUP_SELF_COMPARISON")
def speedup_self_comparison(index: ReportIndex) -> Iterator[str]:
    """A comparison must have one reference and one candidate, which are not the same."""
    loops = {arm.role: arm.loop for arm in index.all_arms}
    if set(loops) != {"reference", "candidate"}:
        yield "a comparison needs one reference and one candidate"
    elif loops["reference"] == loops["candidate"]:
        yield f"both drafters are {loops['reference']}"


@rule("WORKLOAD_DEGENERATE")
def workload_degenerate(index: ReportIndex) -> Iterator[str]:
    """Most drafts must be more than a repeated token, and differ from each other, if there are at least eight."""
    drafts = [row.reference for row in index.rows if len(row.reference) >= _SHORT]
    # Small drafters give the likeliest token for every place that they know nothing of, so ends may repeat.
    times = Counter(map(tuple, drafts))
    dull = [draft for draft in drafts if len(set(draft[1:])) == 1 or times[tuple(draft)] > 1]
    if len(drafts) >= _FEW and len(dull) * 2 > len(drafts):
        yield f"{len(dull)} of {len(drafts)} drafts repeat one token or each other"


def _groups(index: ReportIndex) -> dict[tuple[int, int], list[VerifyRow]]:
    groups: dict[tuple[int, int], list[VerifyRow]] = defaultdict(list)
    for row in index.rows:
        if not row.warmup:
            groups[row.length, row.context].append(row)
    return groups
