"""Laws of repeats: they are the configured ones, and more than the fewest only because times differed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from bridge.evidence.laws.law import DECODED, SWEEP, law
from bridge.evidence.report_index import ReportIndex, rate_of
from bridge.evidence.rows import Decode
from bridge.evidence.rules_speed import DECODE_SPREAD, PREFILL_SPREAD
from bridge.evidence.stats import bounds_of_median

# No further repeat begins so many seconds after the run did (engine/measure/steady.py).
BEGINS_WITHIN = 1800.0


def _configured(index: ReportIndex) -> tuple[float, float]:
    """Return how often each arm runs on each prompt, at least and at most, as configured."""
    config = index.report.config
    asked, most = (getattr(config, name, None) for name in ("repeats", "max_repeats"))
    if not isinstance(asked, int) or isinstance(asked, bool):
        return 0, math.inf
    return asked, most if isinstance(most, int) and not isinstance(most, bool) else asked


def _told(least: float, most: float) -> str:
    return f"{least}" if least == most else f"{least} to {most}"


@law(
    "RUNS_MISNUMBERED", (*DECODED, *SWEEP), "rows.repeat rows.warmup config.repeats",
    "each arm and prompt has the configured number of repeats, in order and without a gap, with warm-up first and at "
    "most one profiled run last",
)  # fmt: skip
def numbered_repeats(index: ReportIndex) -> Iterator[str]:
    cells: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for row in index.rows:
        key = (row.arm, row.prompt) if isinstance(row, Decode) else (row.length, row.context)
        cells[key].append(row)
    least, most = _configured(index)
    ran = max((sum(not row.warmup for row in rows) for rows in cells.values()), default=0)
    for (one, other), rows in cells.items():
        cell, odd = f"{one} on {other}", None
        counted = [row.repeat for row in rows if not row.warmup]
        places = [i for i, row in enumerate(rows) if not row.warmup]
        late = [row for row in rows[places[0] :] if row.warmup] if places else []
        if counted and counted != [*range(counted[0], counted[0] + len(counted))]:
            odd = f"repeats of {cell} are numbered {', '.join(map(str, counted[:8]))}"
        elif counted and counted[0] not in (0, 1):
            odd = f"the first counted repeat of {cell} is number {counted[0]}"
        elif not least <= len(counted) <= most:
            odd = f"{cell} was run {len(counted)} times, and {_told(least, most)} repeats are configured"
        elif most > least and len(counted) != ran:
            odd = f"{cell} was run {len(counted)} times, and others {ran} times"
        elif (
            len(late) > 1
            or any(getattr(row, "profile", None) is None for row in late)
            or (late and not rows[-1].warmup)
        ):
            odd = f"runs of {cell} are set aside after others were counted"
        if odd:
            yield odd


@law(
    "RUNS_MISNUMBERED", DECODED, "rows.repeat rows.decode_s rows.prefill_s rows.started_s config.max_repeats",
    "further repeats were run while times of equal runs differed much, up to the configured number, and no others",
)  # fmt: skip
def repeats_go_on_until_steady(index: ReportIndex) -> Iterator[str]:
    least, most = _configured(index)
    cells = [rows for prompts in index.measured.values() for rows in prompts.values()]
    ran = max(map(len, cells), default=0)
    if not 0 < least < most:
        return
    for repeat in range(int(least), ran):
        if not _goes_on(cells, repeat):
            yield f"repeat {repeat + 1} was run, and the times of the {repeat} before it are close enough"
            return
    if least <= ran < most and _goes_on(cells, ran):
        yield f"no further repeat followed the first {ran}, whose times differ much; up to {most} were to follow"


def _goes_on(cells: list[list[Any]], repeats: int) -> bool:
    """Return whether a further repeat follows the first ones."""
    first = [rows[:repeats] for rows in cells]
    ends = [(row.started_s or 0) + row.e2e_s for rows in first for row in rows]
    return max(ends, default=0) <= BEGINS_WITHIN and not all(map(_steady, first))


def _steady(rows: list[Decode]) -> bool:
    timed = [row for row in rows if row.decode_tokens and row.decode_s]
    if not timed:
        return True
    slow, fast = bounds_of_median(map(rate_of, timed))
    short, long = bounds_of_median(row.prefill_s for row in timed)
    return fast <= DECODE_SPREAD * slow and long <= PREFILL_SPREAD * short
