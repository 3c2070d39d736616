"""Laws of passes over several tokens: they relate the times of passes over one context."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from bridge.evidence.laws.law import SWEEP, law
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.stats import bounds_of_median, median

# A pass over more tokens may use another kernel, which costs up to so many times as much for each token.
DEARER = 2.0
# Attention over more positions takes longer. Measured: 1.2 times from 128 to 1,024 positions, and more.
CHEAPER = 0.8


Timed = tuple[tuple[int, int], list[float]]


def _beside(index: ReportIndex, *fields: str) -> Iterator[tuple[Timed, Timed]]:
    """Yield the seconds of passes by the values of two fields, in their order, each with the next."""
    times: dict[tuple[int, int], list[float]] = defaultdict(list)
    for row in index.rows:
        if not row.warmup:
            times[getattr(row, fields[0]), getattr(row, fields[1])].append(row.seconds)
    yield from pairwise(sorted(times.items()))


@law(
    "CLOCK_IMPLAUSIBLE", SWEEP, "rows.seconds rows.length rows.context",
    f"no token of a pass takes more than {DEARER:g} times as long as a token of a shorter pass over the same context",
)  # fmt: skip
def tokens_of_longer_passes(index: ReportIndex) -> Iterator[str]:
    for ((context, short), few), ((other, long), more) in _beside(index, "context", "length"):
        if context != other:
            continue
        # Of few passes, chance moves the median as far as these bounds.
        least, most = bounds_of_median(more)[0] / long, bounds_of_median(few)[1] / short
        if least > DEARER * most:
            yield (
                f"at context {context}, {long} tokens took {median(more):.3g} s, "
                f"and {short} tokens only {median(few):.3g} s"
            )


@law(
    "CLOCK_IMPLAUSIBLE", SWEEP, "rows.seconds rows.length rows.context",
    f"a pass over a longer context takes at least {CHEAPER:g} times as long as an equal one over a shorter context",
)  # fmt: skip
def passes_over_longer_contexts(index: ReportIndex) -> Iterator[str]:
    for ((length, short), few), ((other, long), more) in _beside(index, "length", "context"):
        if length == other and bounds_of_median(more)[1] < CHEAPER * bounds_of_median(few)[0]:
            few_s, more_s = median(few), median(more)
            yield f"{length} tokens took {more_s:.3g} s at context {long}, and {few_s:.3g} s at context {short}"
